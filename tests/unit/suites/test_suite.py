"""Suites: predictions are computed once, and scores and differences have their intervals."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app as benchmarks
from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.page import render_suite_page
from bertwright.suites.report import PAGE_FILE, REPORT_FILE, evaluate_suite
from bertwright.suites.runner import WORD_VECTORS, WORDS_ALONE, SuiteSystem
from bertwright.suites.suite import EvaluationSuite
from bertwright.testing.toy import toy_text_model
from small_tasks import TEXTS
from web_pages import quiet_page, require_contrast

LANGUAGE_MODEL_TASKS = {"grammar", "articles", "facts"}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def models(model: TextModel) -> dict[str, TextModel]:
    """Two equal models, and one that predicts no tokens."""
    headless = toy_text_model(TEXTS, "objectives={masked: null}", "seed=1")
    return {"model": model, "twin": model, "headless": headless}


@pytest.fixture(scope="module")
def report(
    suite: EvaluationSuite, data: Path, models: dict[str, TextModel], output: Path
) -> dict[str, Any]:
    return evaluate_suite(suite, data, models, output)


def results_of(report: dict[str, Any], system: str) -> dict[str, dict[str, Any]]:
    """Return the results of a system by task, without those that did not run."""
    results = {task["name"]: task["results"][system] for task in report["tasks"]}
    return {name: result for name, result in results.items() if "score" in result}


def test_every_system_does_the_tasks_that_it_can(report, suite, output) -> None:
    assert json.loads((output / REPORT_FILE).read_text()) == report
    assert {*results_of(report, "model")} == {*suite.tasks}
    for system in ("headless", WORD_VECTORS, WORDS_ALONE):
        assert {*results_of(report, system)} == {*suite.tasks} - LANGUAGE_MODEL_TASKS
    facts = next(task for task in report["tasks"] if task["name"] == "facts")
    assert "output over the vocabulary" in facts["results"]["headless"]["not_run"]


def test_intervals_contain_their_scores(report) -> None:
    for system in ("model", WORD_VECTORS, WORDS_ALONE):
        for result in results_of(report, system).values():
            low, high = result["interval"]
            assert low - 1e-9 <= result["score"] <= high + 1e-9


def test_random_labels_give_an_interval_around_chance(report) -> None:
    for system in ("model", "headless", WORD_VECTORS, WORDS_ALONE):
        low, high = results_of(report, system)["noise"]["interval"]
        assert low < 0.5 < high
        assert high - low < 0.2
    assert report["summary"]["model"]["better_than_baselines"] < len(report["tasks"])


def test_equal_models_differ_by_exactly_0(report) -> None:
    pairs = {
        (task["name"], d["first"], d["second"]): d
        for task in report["tasks"]
        for d in task["differences"]
    }
    for task in report["tasks"]:
        twins = pairs[task["name"], "model", "twin"]
        assert (twins["difference"], twins["interval"]) == (0.0, [0.0, 0.0])
        assert not twins["is_significant"]
    results = results_of(report, "model")
    for (name, first, second), record in pairs.items():
        if first == "model":
            expected = results[name]["score"] - results_of(report, second)[name]["score"]
            assert record["difference"] == pytest.approx(expected, abs=1e-12)


def test_what_was_computed_is_not_computed_again(
    report, suite, data, models, output, monkeypatch, tmp_path
) -> None:
    computed: list[str] = []
    predict = SuiteSystem.predict

    def predict_and_count(system: SuiteSystem, task: Any) -> Any:
        predictions = predict(system, task)
        computed.append(system.name)
        return predictions

    monkeypatch.setattr(SuiteSystem, "predict", predict_and_count)
    again = tmp_path / "again"
    shutil.copytree(output, again)
    assert evaluate_suite(suite, data, models, again)["tasks"] == report["tasks"]
    assert computed == []
    # The results of one task are lost, and the data of another change.
    for file in (again / "predictions").glob("likeness-*.json"):
        file.unlink()
    changed = tmp_path / "data"
    shutil.copytree(data, changed)
    with open(changed / "noise" / "dev.tsv", "a") as stream:
        stream.write("a new text\t1\n")
    selected = suite.select(["grammar", "likeness", "noise"])
    evaluate_suite(selected, changed, {"model": models["model"]}, again)
    assert computed == ["model", WORD_VECTORS, WORDS_ALONE] * 2


def test_missing_data_are_named_and_the_rest_runs(suite, data, model, tmp_path) -> None:
    part = tmp_path / "data"
    part.mkdir()
    for name in ("texts.jsonl", "grammar.jsonl"):
        shutil.copy(data / name, part)
    (part / "kinds.tsv").write_text("context\tkind\nA robin is\tbird\n")
    selected = suite.select(["grammar", "articles", "facts", "likeness", "search"])
    report = evaluate_suite(selected, part, {"model": model}, tmp_path / "report")
    reasons = {task["name"]: task.get("not_run") for task in report["tasks"]}
    assert reasons["grammar"] is None
    assert reasons["facts"] == "missing facts.jsonl.gz"
    assert reasons["likeness"] == "missing likeness"
    assert reasons["search"] == "missing queries.jsonl"
    assert "no column 'other'" in reasons["articles"]
    assert report["word_vectors_not_run"] == "missing text.txt"
    page = (tmp_path / "report" / PAGE_FILE).read_text()
    assert all(reason in page for reason in ("missing facts.jsonl.gz", "missing text.txt"))


def test_names_of_baselines_are_not_names_of_models(suite, data, model, tmp_path) -> None:
    with pytest.raises(UserError, match="rename the folder"):
        evaluate_suite(suite.select(["grammar"]), data, {WORDS_ALONE: model}, tmp_path)


@pytest.mark.parametrize("name", [PAGE_FILE, REPORT_FILE])
def test_reports_that_cannot_be_written_are_refused_before_the_tasks(
    name, suite, data, model, tmp_path
) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"{name} is a folder"):
        evaluate_suite(suite.select(["grammar"]), data, {"model": model}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_graphs_are_refused(suite, data, tmp_path) -> None:
    graph = toy_text_model(TEXTS)
    for module in graph.model.modules():
        for name, _ in [*module.named_parameters(recurse=False)]:
            module.register_parameter(name, None)
    with pytest.raises(UserError, match="exported from"):
        evaluate_suite(suite.select(["grammar"]), data, {"graph": graph}, tmp_path)
    with pytest.raises(UserError, match="word vectors is a graph"):
        evaluate_suite(suite.select(["grammar"]), data, {}, tmp_path, word_vectors=graph)


def test_page_is_self_contained(report, output) -> None:
    page = (output / PAGE_FILE).read_text()
    assert render_suite_page(report) == page
    for reference in ("http:", "https:", "src=", "href=", "url(", "@import", "<link"):
        assert reference not in page
    for task in report["tasks"]:
        assert task["method"].split(";")[0] in page.replace("&#39;", "'")
        assert f"{100 * task['results']['model']['score']:.1f}" in page


@pytest.mark.browser
def test_page_is_readable_in_a_browser(report, output, browser) -> None:
    with quiet_page(browser, "file:") as page:
        page.goto(f"file://{(output / PAGE_FILE).resolve()}")
        for theme in ("light", "dark"):
            page.locator(".theme select").select_option(theme)
            require_contrast(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_tables_of_a_report_state_its_scores(report, output, tmp_path) -> None:
    document = tmp_path / "results.md"
    result = CliRunner().invoke(benchmarks, ["suite", str(output), "--document", str(document)])
    assert result.exit_code == 0, result.output
    text = document.read_text()
    assert result.stdout.strip() in text
    assert report["provenance"] in text
    for task in report["tasks"]:
        score = results_of(report, "model")[task["name"]]["score"]
        row = next(line for line in text.splitlines() if line.startswith(f"| {task['title']} |"))
        assert f"{100 * score:.1f} [" in row
    error = CliRunner().invoke(benchmarks, ["suite", str(tmp_path)]).exception
    assert "holds no report" in str(error)
