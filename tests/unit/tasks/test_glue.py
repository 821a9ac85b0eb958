"""GLUE: all tasks of a folder, the leaderboard score, its files, and resuming."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.core.statistics import estimate
from bertwright.tasks.tuning.glue import SUBMISSION_FILES, run_glue
from small_tasks import TEXTS

SETTINGS = {"epochs": 1, "compile": False, "batch_size": 16}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    rte = "".join(
        f"{n}\t{text}\tThe bird\t{'entailment' if 'bird' in text else 'not_entailment'}\n"
        for n, text in enumerate(TEXTS)
    )
    mnli = "".join(
        f"{text}\tThe bird\t{('entailment', 'neutral', 'contradiction')[n % 3]}\n"
        for n, text in enumerate(TEXTS)
    )
    cola = "".join(f"x\t{n % 2}\t\t{text}\n" for n, text in enumerate(TEXTS))
    parts = {
        "RTE": ["train", "dev"],
        "MNLI": ["train", "dev_matched", "dev_mismatched"],
        "CoLA": ["train", "dev"],
    }
    names = {"RTE": "index\tsentence1\tsentence2\tlabel\n", "CoLA": ""}
    for name, files in parts.items():
        (folder / name).mkdir(parents=True)
        rows = {"RTE": rte, "MNLI": mnli, "CoLA": cola}[name]
        header = names.get(name, "sentence1\tsentence2\tgold_label\n")
        for file in files:
            (folder / name / f"{file}.tsv").write_text(header + rows)
    unlabelled = "".join(f"{n}\t{text}\tThe bird\n" for n, text in enumerate(TEXTS))
    (folder / "RTE" / "test.tsv").write_text("index\tsentence1\tsentence2\n" + unlabelled)
    for word in ("matched", "mismatched"):
        file = folder / "MNLI" / f"test_{word}.tsv"
        file.write_text("index\tsentence1\tsentence2\n" + unlabelled)
    (folder / "diagnostic").mkdir()
    diagnostic = "index\tsentence1\tsentence2\n" + unlabelled
    (folder / "diagnostic" / "diagnostic.tsv").write_text(diagnostic)
    texts = "".join(f"{n}\t{text}\n" for n, text in enumerate(TEXTS))
    (folder / "CoLA" / "test.tsv").write_text("index\tsentence\n" + texts)
    return folder


def test_present_tasks_are_trained_scored_and_submitted(pretrained, data, tmp_path) -> None:
    out = tmp_path / "out"
    result = run_glue(pretrained(), data, out, settings=SETTINGS)
    assert set(result["tasks"]) == {"cola", "mnli", "rte"}
    assert result["tasks"]["cola"]["score"] == result["tasks"]["cola"]["matthews"]
    mnli = result["tasks"]["mnli"]
    assert mnli["score"] == pytest.approx((mnli["matched"] + mnli["mismatched"]) / 2)
    scores = [task_result["score"] for task_result in result["tasks"].values()]
    assert result["score"] == pytest.approx(sum(scores) / 3)
    assert json.loads((out / "glue.json").read_text())["score"] == result["score"]
    written = {file.name for file in (out / "submission").iterdir()}
    mnli_files = {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
    assert written == {SUBMISSION_FILES["rte"], SUBMISSION_FILES["cola"], *mnli_files}
    lines = (out / "submission" / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 1 + len(TEXTS)
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}


def test_finished_tasks_are_skipped(pretrained, data, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    first = run_glue(pretrained(), data, out, settings=SETTINGS)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("all tasks are finished")

    monkeypatch.setattr("bertwright.tasks.tuning.glue.finetune", refuse)
    assert run_glue(pretrained(), data, out, settings=SETTINGS) == first
    with pytest.raises(UserError, match=r"cola was trained with epochs=1, not 2"):
        run_glue(pretrained(), data, out, settings={**SETTINGS, "epochs": 2})


def test_finished_tasks_with_other_inputs_are_refused(
    pretrained, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name in ("MNLI", "CoLA"):
        rmtree(data / name)
    run_glue(pretrained(), data, out, settings=SETTINGS)
    with pytest.raises(UserError, match=r"rte was trained with learning_rate=.*, not 0\.5"):
        run_glue(pretrained(), data, out, settings={**SETTINGS, "learning_rate": 0.5})
    changed = pretrained()
    with torch.no_grad():
        next(iter(changed.model.encoder.parameters())).view(-1)[-1] += 1
    with pytest.raises(UserError, match="rte was trained with another model"):
        run_glue(changed, data, out, settings=SETTINGS)
    for part, message in (("dev", "other development"), ("train", "other training")):
        file = data / "RTE" / f"{part}.tsv"
        before = file.read_text()
        file.write_text(before.replace("The red bird", "The red cat", 1))
        with pytest.raises(UserError, match=message):
            run_glue(pretrained(), data, out, settings=SETTINGS)
        file.write_text(before)
    assert run_glue(pretrained(), data, out, settings=SETTINGS)["tasks"]["rte"]


def test_both_mnli_scores_are_means_over_seeds(
    pretrained, data: Path, tmp_path: Path, monkeypatch
) -> None:
    for name in ("RTE", "CoLA"):
        rmtree(data / name)
    scores = [0.25, 0.75]
    remaining_scores = iter(scores)

    def evaluated(*_: object) -> dict[str, dict[str, float]]:
        return {"metrics": {"accuracy": next(remaining_scores)}}

    monkeypatch.setattr("bertwright.tasks.tuning.glue.evaluate", evaluated)
    settings = {**SETTINGS, "seeds": len(scores)}
    result = run_glue(pretrained(), data, tmp_path / "out", settings=settings)["tasks"]["mnli"]
    record = json.loads((tmp_path / "out" / "mnli" / "training.json").read_text())
    assert result["matched"] == pytest.approx(sum(record["scores"]) / len(scores))
    assert result["mismatched"] == pytest.approx(sum(scores) / len(scores))
    again = run_glue(pretrained(), data, tmp_path / "out", settings=settings)["tasks"]["mnli"]
    assert again == result
    means = [(one + other) / 2 for one, other in zip(record["scores"], scores, strict=True)]
    assert result["interval"] == pytest.approx(estimate(means).interval)


def test_interval_belongs_to_the_score(pretrained, data: Path, tmp_path: Path) -> None:
    for name in ("RTE", "MNLI"):
        rmtree(data / name)
    (data / "CoLA").rename(data / "MRPC")
    rows = "".join(f"{n % 2}\t{text}\tThe bird\n" for n, text in enumerate(TEXTS))
    for part in ("train", "dev"):
        (data / "MRPC" / f"{part}.tsv").write_text("Quality\t#1 String\t#2 String\n" + rows)
    (data / "MRPC" / "test.tsv").unlink()
    settings = {**SETTINGS, "seeds": 3}
    result = run_glue(pretrained(), data, tmp_path / "out", settings=settings)["tasks"]["mrpc"]
    record = json.loads((tmp_path / "out" / "mrpc" / "training.json").read_text())
    by_seed = record["metrics_by_seed"]
    assert by_seed["accuracy"] == record["scores"]
    expected = estimate([sum(values) / 2 for values in zip(*by_seed.values(), strict=True)])
    assert result["score"] == pytest.approx(expected.mean)
    assert result["interval"] == pytest.approx(expected.interval)


@pytest.mark.parametrize("name", ["RTE/dev.tsv", "MNLI/dev_mismatched.tsv", "MNLI/dev_matched.tsv"])
def test_a_missing_file_is_named_before_anything_is_learned(
    pretrained, data: Path, tmp_path: Path, name: str
) -> None:
    (data / name).unlink()
    with pytest.raises(UserError, match="expected one file named after"):
        run_glue(pretrained(), data, tmp_path / "out", settings=SETTINGS)
    assert not (tmp_path / "out").exists()


def test_a_folder_without_tasks_is_named(pretrained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        run_glue(pretrained(), tmp_path / "none", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no folder of a GLUE task"):
        run_glue(pretrained(), tmp_path / "empty", tmp_path / "out")
