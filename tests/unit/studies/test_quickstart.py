"""The quickstart with a few modules of the sample text."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.data.sample_text.installed_packages import InstalledPackage, standard_library
from bertwright.data.sample_text.sample import write_sample_text
from bertwright.data.shards.dataset import Dataset
from bertwright.studies import quickstart as quickstart_module
from bertwright.tasks.formats.punctuation_restoration import restoration_examples

KEYS = {
    *("seconds", "heldout_loss", "unigram_entropy", "masked_accuracy", "most_frequent_accuracy"),
    *("task", "export_max_difference"),
}
TASK_KEYS = {"name", "score", "majority", "words_alone", "untrained"}


@pytest.fixture(scope="module")
def quickstart_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The result, the log and the folder."""
    library = standard_library()
    package = InstalledPackage(library.name, library.version, library.modules[::8])
    lines: list[str] = []
    folder = tmp_path_factory.mktemp("quickstart") / "out"
    settings = {**quickstart_module.FINE_TUNING, "epochs": 1, "compile": False}
    write = partial(write_sample_text, packages=[package])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quickstart_module, "write_sample_text", write)
        patch.setattr(quickstart_module, "FINE_TUNING", settings)
        result = quickstart_module.quickstart(folder, minutes=0.05, log=lines.append)
    return result, lines, folder


def test_result_has_the_documented_keys(quickstart_run: Any) -> None:
    _, _, folder = quickstart_run
    result = json.loads((folder / "result.json").read_text())
    assert result.keys() == KEYS
    assert result["task"].keys() == TASK_KEYS
    assert result["export_max_difference"] < 1e-4


def test_log_has_all_stages_and_metrics(quickstart_run: Any) -> None:
    result, lines, folder = quickstart_run
    stages = ["sample", "tokenizer", "prepare", "pretrain", "fine-tune", "untrained", "export"]
    assert [line.split()[0] for line in lines[: len(stages)]] == stages
    assert (folder / "output.txt").read_text() == "\n".join(lines) + "\n"
    for metric in (result.heldout_loss, result.task.score, result.task.untrained):
        assert any(f"{metric:.3f}" in line for line in lines)


def test_plot_and_export_are_written(quickstart_run: Any) -> None:
    _, _, folder = quickstart_run
    assert (folder / "quickstart.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "huggingface" / "config.json").is_file()


def test_task_is_made_of_held_out_documents(quickstart_run: Any) -> None:
    _, _, folder = quickstart_run
    documents = quickstart_module.held_out_documents(folder / "sample" / "sample.txt")
    data = Dataset.open(folder / "data")
    heldout = data.split("heldout")
    assert len(documents) == heldout.num_documents
    tokens = [data.tokenizer.encode(document) for document in documents]
    assert sum(map(len, tokens)) == heldout.num_tokens
    assert restoration_examples(documents)


def test_existing_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        quickstart_module.quickstart(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_pretraining_is_shorter_on_slow_machines() -> None:
    assert quickstart_module.pretraining_seconds(5, spent=30) == 300
    assert quickstart_module.pretraining_seconds(5, spent=80) == 260
    assert quickstart_module.pretraining_seconds(5, spent=600) == 150
