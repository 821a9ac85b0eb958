"""Few data: analyses have results without verdicts, or say why they do not apply."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import (
    MIN_UNITS,
    MIN_UNITS_WITHOUT_INTERVAL,
    Claim,
    ClaimResult,
)
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.report import write_report
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    StoredResult,
    interval_finding,
    read_result,
    write_result,
)
from bertwright.analysis.core.runner import run_analyses, select_analyses
from bertwright.analysis.core.texts import encode_nonempty_texts, encode_texts
from bertwright.core.errors import UserError
from bertwright.core.significance import bootstrap_difference, bootstrap_ratio, bootstrap_ratios
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.testing.toy import toy_text_model
from experiments.analyses.models import SENTENCES, small_model


def tree(text: str) -> DependencyTree:
    """Build a tree from ``word/TAG`` items; all words depend on the first."""
    words, tags = zip(*(item.split("/") for item in text.split()), strict=True)
    others = len(words) - 1
    return DependencyTree(words, (-1,) + (0,) * others, ("root",) + ("obj",) * others, tags)


ONE = [tree("sees/VERB the/DET keeper/NOUN a/DET ship/NOUN ./PUNCT")]
WORDS = [tree(f"{word}/NOUN") for word in ("ship", "lamp", "boat", "tree")]
STOPS = [tree("./PUNCT")] * 4
ONE_TAG = [tree("ship/NOUN lamp/NOUN"), tree("boat/NOUN tree/NOUN")] * 3
STARRED = [tree("sees/VERB" + " ship/NOUN" * 30), *ONE * 3]

WITH_BUILT_IN_SENTENCES = (
    "agreement",
    "coreference",
    "coreference-names",
    "coreference-probe",
    "facts",
    "main-auxiliary",
    "negation",
    "numbers",
    "word-senses",
)
"""Analyses that ignore the input texts."""


def parse_strictly(line: str) -> object:
    """Parse JSON without NaN."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize(
    ("trees", "names"),
    [
        (ONE, ("all",)),
        (WORDS, ("attention", "attribution", "identifiability", "probing", "syntax")),
        pytest.param(STOPS, ("syntax", "probing", "geometry", "dynamics"), marks=pytest.mark.full),
        pytest.param(ONE_TAG, ("probing",), marks=pytest.mark.full),
        (STARRED, ("syntax",)),
    ],
)
def test_few_data_have_no_verdicts(
    trees: list[DependencyTree], names: tuple[str, ...], tmp_path: Path
) -> None:
    model = small_model()
    inputs = AnalysisInput(
        model, encode_texts(model, trees), other_model=model.with_random_weights(1)
    )
    analyses = [a for a in select_analyses(names) if a.kind_name() not in WITH_BUILT_IN_SENTENCES]
    reports = run_analyses(inputs, analyses, tmp_path, lambda line: None)
    write_report(inputs, reports, tmp_path, "now")
    # Changes of parameters do not depend on texts.
    of_texts = [report for report in reports if report.analysis.kind_name() != "change"]
    verdicts = {claim.verdict for report in of_texts for claim in report.claim_results}
    assert verdicts <= {"invalid design", "undecided"}
    for report in reports:
        json.dumps(report.as_dict(), allow_nan=False)
        if report.not_applicable is None:
            file = tmp_path / f"{report.analysis.kind_name()}.jsonl"
            for line in file.read_text().splitlines():
                parse_strictly(line)


def test_analyses_of_predictions_do_not_apply_to_a_cloze(tmp_path: Path) -> None:
    # Its classes are words in a template, which the texts of an analysis do not have.
    words = ("ship", "lamp", "boat", "tree")
    texts = [Example(" ".join(words), label=words[n % 2]) for n in range(8)]
    task = table_task("classes", Columns(), "cloze")
    cloze = finetune(small_model().text_model, task, train=texts, dev=texts, epochs=0).model
    model = AnalysedModel("cloze", cloze)
    analyses = select_analyses(["attention-explains", "learned-masks", "single-heads"])
    inputs = AnalysisInput(model, encode_texts(model, texts))
    reports = run_analyses(inputs, analyses, tmp_path, lambda line: None)
    reason = "its classes are words in a template that surrounds every text"
    assert [report.not_applicable for report in reports] == [reason] * 3


@pytest.mark.parametrize(
    ("name", "trees", "expected"),
    [
        ("attention-parser", ONE, "four sentences"),
        ("attention-parser", STOPS, "punctuation alone"),
        ("edge-probe", WORDS, "depends on another"),
        ("structural-probe", WORDS, "four sentences of two words"),
        ("structural-probe", [tree("ship/NOUN ./PUNCT")] * 4, "depends on another"),
        ("linear-probe", ONE_TAG, "same part of speech"),
        ("feature-layers", ONE_TAG, "same part of speech"),
        ("description-length", ONE_TAG, "same part of speech"),
        ("seeds", ONE_TAG * 2, "same part of speech"),
        ("one-head", ONE, "four texts"),
        ("input-attribution", WORDS, "three tokens"),
        ("attention-explains", WORDS, "three tokens"),
        ("learned-masks", WORDS * 2, "three tokens"),
    ],
)
def test_missing_data_are_stated(name: str, trees: list[DependencyTree], expected: str) -> None:
    model = small_model()
    reason = Analysis.parse(name).not_applicable(AnalysisInput(model, encode_texts(model, trees)))
    assert reason is not None
    assert expected in reason


@pytest.mark.parametrize("name", ["agreement", "negation", "facts", "effective-context", "novelty"])
def test_right_to_left_models_are_left_out(name: str) -> None:
    model = AnalysedModel("backward", toy_text_model([*SENTENCES], recipe="awd-lstm-backward"))
    texts = encode_texts(model, [Example(text) for text in SENTENCES])
    reason = Analysis.parse(name).not_applicable(AnalysisInput(model, texts))
    assert reason is not None
    assert ("left to right" if name == "novelty" else "from right to left") in reason


def verdict(interval: tuple[float, float] | None, number: int | None, **options: float) -> str:
    return ClaimResult("c", "p", 0.6, interval, 0.5, "b", num_units=number, **options).verdict


def test_too_few_units_decide_nothing() -> None:
    assert verdict((0.55, 0.7), MIN_UNITS) == "seen"
    assert verdict((0.55, 0.7), MIN_UNITS - 1) == "undecided"
    # With five texts or fewer, one in twenty chances puts all on one side.
    assert 2 * 0.5**MIN_UNITS < 0.05 <= 2 * 0.5 ** (MIN_UNITS - 1)
    assert (verdict(None, 20), verdict(None, 19)) == ("seen", "undecided")
    assert verdict(None, MIN_UNITS_WITHOUT_INTERVAL) == "seen"
    assert verdict(None, MIN_UNITS_WITHOUT_INTERVAL - 1) == "undecided"
    assert verdict(None, MIN_UNITS, p_value=0.01) == "seen"
    assert verdict(None, MIN_UNITS - 1, p_value=0.01) == "undecided"
    assert verdict(None, MIN_UNITS, p_value=0.5) == "undecided"
    assert verdict(None, None) == "seen"
    few = ClaimResult("c", "p", 0.6, None, 0.5, "b", num_units=1)
    number = MIN_UNITS_WITHOUT_INTERVAL
    assert few.verdict_text == f"undecided: 1 texts are too few: {number} are needed"
    assert few.as_dict()["units_needed"] == number


def test_undecided_claim_states_how_many_texts_would_decide() -> None:
    claim = ClaimResult("c", "p", 0.6, (0.4, 0.8), 0.5, "b", num_units=100)
    assert claim.verdict_text == "undecided: 400 texts would decide"
    below = ClaimResult("c", "p", 0.4, (0.2, 0.6), 0.5, "b", "below", num_units=100)
    assert below.outcome == claim.outcome


def test_small_differences_are_none_if_the_claim_says_so() -> None:
    assert verdict((0.49, 0.51), 100, negligible=0.02) == "no difference"
    assert verdict((0.49, 0.51), 100) == "undecided"


def test_ratios_without_data_are_nan() -> None:
    zeros, ones = np.zeros(3), np.ones(3)
    intervals = [
        bootstrap_ratio(zeros, zeros),
        *bootstrap_ratios(zeros[:, None], zeros[:, None]),
        bootstrap_difference((ones, ones), (zeros, zeros)),
    ]
    for interval in intervals:
        assert np.isnan([interval.value, interval.low, interval.high]).all()
        finding = interval_finding("m", interval)
        assert finding.interval is None
        claim = Claim("c", "p", "m").check(StoredResult({}, [finding.as_dict()], {}))
        assert claim is not None
        assert claim.verdict == "invalid design"
        assert claim.as_dict()["value"] is None


def test_non_finite_values_are_null_and_read_as_nan(tmp_path: Path) -> None:
    result = AnalysisResult(
        [
            AnalysisFinding("m", float("nan")),
            AnalysisFinding("n", float("inf"), interval=(0.0, 1.0)),
        ]
    )
    write_result(tmp_path, "a", {"num_texts": 3}, result)
    _, first, second = map(parse_strictly, (tmp_path / "a.jsonl").read_text().splitlines())
    assert (first["value"], second["value"]) == (None, None)
    stored = read_result(tmp_path, "a")
    assert np.isnan([finding["value"] for finding in stored.findings]).all()
    assert (stored.metadata, stored.num_texts) == ({"num_texts": 3}, 3)


def test_texts_without_words_are_skipped() -> None:
    model = small_model()
    texts = [Example("\u200b"), Example(SENTENCES[0]), Example("\u200b", "the lamp")]
    assert [text.words for text in encode_texts(model, texts[:1])] == [()]
    assert [text.source for text in encode_nonempty_texts(model, texts)] == texts[1:]
    with pytest.raises(UserError, match="no text has a word that fits into 128 tokens of bert"):
        encode_nonempty_texts(model, texts[:1])
