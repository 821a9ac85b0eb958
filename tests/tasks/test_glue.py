"""GLUE: every task that is there, the leaderboard's score, its files, and no work done twice."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
import torch

from bertwright.errors import UserError
from bertwright.statistics import estimate
from bertwright.tasks.glue import SUBMISSIONS, run_glue
from small_tasks import TEXTS

SETTINGS = {"epochs": 1, "compile": False, "batch": 16}


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


def test_all_that_is_there_is_learned_scored_and_submitted(pretrained, data, tmp_path) -> None:
    out = tmp_path / "out"
    found = run_glue(pretrained(), data, out, settings=SETTINGS)
    assert set(found["tasks"]) == {"cola", "mnli", "rte"}
    assert found["tasks"]["cola"]["score"] == found["tasks"]["cola"]["matthews"]
    mnli = found["tasks"]["mnli"]
    assert mnli["score"] == pytest.approx((mnli["matched"] + mnli["mismatched"]) / 2)
    scores = [of["score"] for of in found["tasks"].values()]
    assert found["score"] == pytest.approx(sum(scores) / 3)
    assert json.loads((out / "glue.json").read_text())["score"] == found["score"]
    written = {file.name for file in (out / "submission").iterdir()}
    of_mnli = {"MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
    assert written == {SUBMISSIONS["rte"], SUBMISSIONS["cola"], *of_mnli}
    lines = (out / "submission" / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 1 + len(TEXTS)
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}


def test_what_is_done_is_not_done_again(pretrained, data, tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    first = run_glue(pretrained(), data, out, settings=SETTINGS)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("everything is there")

    monkeypatch.setattr("bertwright.tasks.glue.finetune", refuse)
    assert run_glue(pretrained(), data, out, settings=SETTINGS) == first
    with pytest.raises(UserError, match=r"cola was trained with epochs=1, asked is 2"):
        run_glue(pretrained(), data, out, settings={**SETTINGS, "epochs": 2})


def test_what_was_done_otherwise_is_not_taken_for_what_is_asked(
    pretrained, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name in ("MNLI", "CoLA"):
        rmtree(data / name)
    run_glue(pretrained(), data, out, settings=SETTINGS)
    with pytest.raises(UserError, match=r"rte was trained with rate=.*, asked is 0\.5"):
        run_glue(pretrained(), data, out, settings={**SETTINGS, "rate": 0.5})
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


def test_both_parts_of_mnli_are_means_over_the_seeds(
    pretrained, data: Path, tmp_path: Path, monkeypatch
) -> None:
    for name in ("RTE", "CoLA"):
        rmtree(data / name)
    scores = [0.25, 0.75]
    one_after_the_other = iter(scores)

    def evaluated(*_: object) -> dict[str, dict[str, float]]:
        return {"metrics": {"accuracy": next(one_after_the_other)}}

    monkeypatch.setattr("bertwright.tasks.glue.evaluate", evaluated)
    settings = {**SETTINGS, "seeds": len(scores)}
    found = run_glue(pretrained(), data, tmp_path / "out", settings=settings)["tasks"]["mnli"]
    about = json.loads((tmp_path / "out" / "mnli" / "training.json").read_text())
    assert found["matched"] == pytest.approx(sum(about["scores"]) / len(scores))
    assert found["mismatched"] == pytest.approx(sum(scores) / len(scores))
    again = run_glue(pretrained(), data, tmp_path / "out", settings=settings)["tasks"]["mnli"]
    assert again == found
    means = [(one + other) / 2 for one, other in zip(about["scores"], scores, strict=True)]
    assert found["interval"] == pytest.approx(estimate(means).interval)


def test_an_interval_is_that_of_the_score(pretrained, data: Path, tmp_path: Path) -> None:
    for name in ("RTE", "MNLI"):
        rmtree(data / name)
    (data / "CoLA").rename(data / "MRPC")
    rows = "".join(f"{n % 2}\t{text}\tThe bird\n" for n, text in enumerate(TEXTS))
    for part in ("train", "dev"):
        (data / "MRPC" / f"{part}.tsv").write_text("Quality\t#1 String\t#2 String\n" + rows)
    (data / "MRPC" / "test.tsv").unlink()
    settings = {**SETTINGS, "seeds": 3}
    found = run_glue(pretrained(), data, tmp_path / "out", settings=settings)["tasks"]["mrpc"]
    about = json.loads((tmp_path / "out" / "mrpc" / "training.json").read_text())
    by_seed = about["metrics_by_seed"]
    assert by_seed["accuracy"] == about["scores"]
    expected = estimate([sum(each) / 2 for each in zip(*by_seed.values(), strict=True)])
    assert found["score"] == pytest.approx(expected.mean)
    assert found["interval"] == pytest.approx(expected.interval)


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
    with pytest.raises(UserError, match="has no folder of a task of GLUE"):
        run_glue(pretrained(), tmp_path / "empty", tmp_path / "out")
