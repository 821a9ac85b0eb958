"""``analyse`` and ``analyses``, and the check of all analyses on a toy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bertwright.analysis.core.analysis import Analysis
from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.models.saving import save_model
from commands import invoke, invoke_json
from experiments.__main__ import app as experiments
from experiments.analyses import checking
from experiments.analyses.expecting import ExpectedValue, expect_same
from experiments.analyses.models import SENTENCES, WORDS, small_inputs, small_model
from experiments.analyses.writers import prepare_chains


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a model and of texts."""
    folder = tmp_path_factory.mktemp("analyse")
    small_model().text_model.save(folder / "model")
    (folder / "texts.txt").write_text("\n".join(SENTENCES))
    return folder


def test_two_models_are_analysed_and_compared(folder: Path, tmp_path: Path) -> None:
    result = invoke_json(
        "analyse", folder / "model", "B4", "malformed-input", "--compare-with", folder / "model",
        "--data", folder / "texts.txt", "-o", tmp_path / "analysis",
    )  # fmt: skip
    entropy, malformed = result["analyses"]
    assert entropy["id"] == "B4"
    assert entropy["claims"]
    assert entropy["other_model"]["claims"] == entropy["claims"]
    assert "not_applicable" in malformed
    assert (tmp_path / "analysis" / "attention-entropy.jsonl").is_file()
    assert Path(result["page"]).is_file()


def test_the_heads_to_keep_are_written(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "analysis"
    options = ("--data", folder / "texts.txt", "-o", output, "--keep-heads", 0.5)
    with pytest.raises(UserError, match="--keep-heads needs the analysis head-importance"):
        invoke("analyse", folder / "model", "attention-entropy", *options)
    assert not output.exists()
    invoke("analyse", folder / "model", "head-importance", *options)
    kept = json.loads((output / "kept_heads.json").read_text())
    assert sum(map(len, kept["heads"])) == 4
    model = small_model("bert").text_model.model
    headless = model.recipe.model_copy(update={"objectives": {}})
    tokenizer = small_model("bert").text_model.tokenizer
    save_model(tmp_path / "headless", Model.build(headless, model.vocab_size), tokenizer)
    with pytest.raises(
        UserError, match="--keep-heads needs head-importance: the model has neither"
    ):
        invoke("analyse", tmp_path / "headless", "head-importance", *options)
    assert json.loads((output / "kept_heads.json").read_text()) == kept


def test_generated_text_is_compared_with_the_training_data(tmp_path: Path) -> None:
    data = prepare_chains(tmp_path)
    small_model("gpt-2").text_model.save(tmp_path / "writer")
    (tmp_path / "texts.txt").write_text("".join(f"{' '.join(WORDS * 4)}\n" for _ in range(2)))
    options = ("novelty", "--data", tmp_path / "texts.txt", "-o", tmp_path / "analysis")
    (missing,) = invoke_json("analyse", tmp_path / "writer", *options)["analyses"]
    assert "--training-data" in missing["not_applicable"]
    with pytest.raises(UserError, match="holds no prepared data"):
        invoke("analyse", tmp_path / "writer", *options, "--training-data", tmp_path)
    result = invoke_json("analyse", tmp_path / "writer", *options, "--training-data", data.path)
    assert [claim["num_units"] for claim in result["analyses"][0]["claims"]] == [2, 2]


def test_entity_tags_need_trees(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tags.iob2").write_text("1\tthe\tO\n")
    options = ("--data", folder / "texts.txt", "-o", tmp_path / "analysis")
    with pytest.raises(UserError, match=r"tags\.iob2 tags the words of trees: give a CoNLL-U file"):
        invoke("analyse", folder / "model", *options, "--entities", tmp_path / "tags.iob2")
    assert not (tmp_path / "analysis").exists()


def test_every_analysis_is_listed() -> None:
    known = invoke_json("analyses")["analyses"]
    assert {analysis["analysis"] for analysis in known} == set(Analysis.kinds())
    listed = invoke("analyses").stdout
    assert all(analysis["title"] in listed for analysis in known)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Analyse a small model instead of a trained one."""
    monkeypatch.setattr(checking, "toy_inputs", lambda *_: [small_inputs()])


def check(*names: Any) -> Result:
    return CliRunner().invoke(experiments, ["analyses", "--quick", *names])


@pytest.mark.usefixtures("toy")
def test_a_check_fails_where_an_expectation_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missed() -> Iterator[ExpectedValue]:
        yield expect_same("the answer", 41, 42)

    result = check("attention-mass")
    assert (result.exit_code, "expectations hold" in result.stdout) == (0, True)
    monkeypatch.setattr(checking, "PLANTED_CHECKS", {"attention-mass": missed})
    result = check("attention-mass", "attention-entropy", "--json")
    mass, entropy = json.loads(result.stdout)["analyses"]
    assert result.exit_code == 1
    assert (mass["id"], mass["ok"], entropy["ok"]) == ("B2", False, True)
    assert mass["failures"] == ["the answer: 41 for 42: 0, not in [1, 1]"]


@pytest.mark.usefixtures("toy")
def test_an_analysis_that_does_not_apply_to_the_toy_fails_its_check() -> None:
    result = check("relation-heads")
    assert result.exit_code == 1
    assert "not applicable to the toy" in result.stdout
