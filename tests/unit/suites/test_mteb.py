"""The adapter to mteb: its evaluators give the scores of the suite."""

import shutil
import warnings
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.mteb import mteb_model, mteb_scores, mteb_tasks
from bertwright.suites.suite import EvaluationSuite
from retrieval_models import bert_with_marks, retrieval_model


@pytest.mark.full
def test_mteb_gives_the_same_scores(
    suite: EvaluationSuite,
    data: Path,
    model: TextModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that mteb imports
        scores = mteb_scores(suite, data, {"toy": model}, tmp_path)
    assert {*scores} == {"likeness", "glosses", "search", "noise", "paraphrase"}
    for name, by_model in scores.items():
        task = suite.tasks[name].prepare(data)
        sums = task.sums(task.predict(model))
        assert by_model["toy"] == pytest.approx(sums.statistic(sums.values.sum(0)), abs=1e-5)
    assert [*tmp_path.rglob("bertwright-search.json")]
    assert "examples/s" not in capsys.readouterr().err


@pytest.mark.full
def test_scores_of_other_examples_are_computed_again(
    suite: EvaluationSuite, data: Path, model: TextModel, tmp_path: Path
) -> None:
    """mteb keeps its results by the name of a task."""
    changed, cache = tmp_path / "data", tmp_path / "mteb"
    shutil.copytree(data / "likeness", changed / "likeness")
    header, *lines = (changed / "likeness" / "dev.tsv").read_text().splitlines()

    def score(selection: EvaluationSuite, folder: Path = cache) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries that mteb imports
            by_model = mteb_scores(selection, changed, {"toy": model}, folder)["likeness"]
        return round(by_model["toy"], 5)  # as in its files

    likeness = suite.select(["likeness"])
    first = score(likeness)
    (changed / "likeness" / "dev.tsv").write_text("\n".join([header, *lines[: len(lines) // 2]]))
    second = score(likeness)
    assert second == score(likeness, tmp_path / "other") != first
    task = likeness.tasks["likeness"].model_copy(update={"max_examples": 4})
    fewer = likeness.model_copy(update={"tasks": {"likeness": task}})
    assert score(fewer) == score(fewer, tmp_path / "fewer") != second


def test_tasks_without_data_are_left_out(suite: EvaluationSuite, tmp_path: Path) -> None:
    assert [*mteb_tasks(suite, tmp_path)] == []


def test_models_without_text_vectors_are_refused(model: TextModel) -> None:
    sparse = retrieval_model(bert_with_marks(model.tokenizer), kind="sparse")
    with pytest.raises(UserError, match="no single vector"):
        mteb_model(sparse, "sparse")
