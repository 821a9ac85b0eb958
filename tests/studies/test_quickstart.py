"""The quickstart at toy size: a few modules, a few seconds."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bertwright.errors import UserError
from bertwright.studies import quickstart as study
from bertwright.tasks.restoration import restoration_examples
from bertwright.text.installed import Package, standard_library
from bertwright.text.sample import gather_sample
from bertwright.text.shards import Data

KEYS = {
    *("seconds", "heldout_loss", "unigram_entropy", "masked_accuracy", "most_frequent_accuracy"),
    *("task", "export_max_difference"),
}
TASK_KEYS = {"name", "score", "majority", "words_alone", "untrained"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What it found, what it said, and its folder."""
    whole = standard_library()
    few = Package(whole.name, whole.version, whole.modules[::8])
    lines: list[str] = []
    folder = tmp_path_factory.mktemp("quickstart") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "gather_sample", partial(gather_sample, packages=[few]))
        patch.setattr(study, "FINE_TUNING", {**study.FINE_TUNING, "epochs": 1, "compile": False})
        found = study.quickstart(folder, minutes=0.05, say=lines.append)
    return found, lines, folder


def test_the_result_has_the_promised_keys(ran: Any) -> None:
    _, _, folder = ran
    result = json.loads((folder / "result.json").read_text())
    assert result.keys() == KEYS
    assert result["task"].keys() == TASK_KEYS
    assert result["export_max_difference"] < 1e-4


def test_it_says_a_line_for_every_stage_and_every_figure(ran: Any) -> None:
    found, lines, folder = ran
    stages = ["sample", "tokenizer", "prepare", "pretrain", "fine-tune", "untrained", "export"]
    assert [line.split()[0] for line in lines[: len(stages)]] == stages
    assert (folder / "output.txt").read_text() == "\n".join(lines) + "\n"
    for figure in (found.heldout_loss, found.task.score, found.task.untrained):
        assert any(f"{figure:.3f}" in line for line in lines)


def test_there_is_a_picture_and_a_folder_for_transformers(ran: Any) -> None:
    _, _, folder = ran
    assert (folder / "quickstart.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "huggingface" / "config.json").is_file()


def test_the_task_is_made_of_the_documents_that_were_held_out(ran: Any) -> None:
    _, _, folder = ran
    documents = study.held_out_documents(folder / "sample" / "sample.txt")
    data = Data.open(folder / "data")
    assert len(documents) == data.split("heldout").num_documents
    heldout = data.split("heldout")
    pieces = [data.tokenizer.encode(document) for document in documents]
    assert sum(map(len, pieces)) == heldout.num_pieces
    assert restoration_examples(documents)


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        study.quickstart(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_a_slow_machine_pre_trains_for_less() -> None:
    assert study.pretraining_seconds(5, spent=30) == 300
    assert study.pretraining_seconds(5, spent=80) == 260
    assert study.pretraining_seconds(5, spent=600) == 150
