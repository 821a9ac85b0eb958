"""Behavioural suites: their sentences, and failures by suite and capability."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from bertwright.analysis.behaviour.checklist.invariance_suites import swap_letters, toggle_full_stop
from bertwright.analysis.behaviour.checklist.sentiment_suites import (
    SENTIMENT_TEMPLATES,
    SLOTS,
    SentimentLabels,
    sentiment_labels,
)
from bertwright.analysis.behaviour.checklist.suite import (
    BehaviouralSuite,
    SuiteItem,
    join_parts,
    split_text,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.runner import run_analyses
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.formats.examples import Example
from experiments.analyses.classifiers import bag_of_tokens_model
from experiments.analyses.models import SENTENCES, WORDS, small_model

LABELS = ("negative", "positive")
SENTIMENT = SentimentLabels("positive", "negative")


def make_inputs(model: AnalysedModel) -> AnalysisInput:
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))


def test_a_small_drop_in_probability_is_tolerated() -> None:
    items = (SuiteItem(text="b", original_text="a", label="yes"),)
    suite = BehaviouralSuite(name="s", capability="c", form="direction", items=items)
    for drop, fails in ((-0.5, False), (0.09, False), (0.11, True)):
        probabilities = [[{"yes": p, "no": 1 - p}] for p in (0.9, 0.9 - drop)]
        assert suite.failures(*probabilities).tolist() == [fails]


def test_custom_suites() -> None:
    suite = {
        "name": "mine",
        "capability": "weather",
        "form": "minimum functionality",
        "items": [{"text": "a wind", "label": label} for label in LABELS],
    }
    planted = make_inputs(bag_of_tokens_model({"wind": 1.0}, labels=LABELS))
    other = {**suite, "name": "other", "items": [{"text": "a wind", "label": "positive"}]}
    settings = {"kind": "suites", "items_per_suite": 4, "custom_suites": [suite, other]}
    result = Analysis.parse(settings).run(planted)
    findings = {finding.metric: finding for finding in result.findings}
    assert (findings["failures, mine"].value, findings["failures, other"].value) == (0.5, 0)
    together = findings["failures, all of weather"]
    assert together.value == pytest.approx(1 / 3)
    assert together.num_units == 1
    for wrong in ({**suite, "form": "invariance"}, {**suite, "items": [{"text": "a wind"}]}):
        with pytest.raises(ValidationError, match="needs"):
            BehaviouralSuite.model_validate(wrong)


def test_templates_make_distinct_balanced_sentences() -> None:
    for template in SENTIMENT_TEMPLATES:
        suite = template.build_suite(SENTIMENT, 60, 0)
        assert len(suite.items) > 30
        assert len({item.text for item in suite.items}) == len(suite.items)
        assert not any("{" in item.text for item in suite.items)
        fraction = np.mean([item.label == "positive" for item in suite.items])
        assert fraction == pytest.approx(0.5, abs=0.05)


def test_typos_change_two_letters_or_a_full_stop_only() -> None:
    generator = np.random.default_rng(0)
    for sentence in SENTENCES:
        parts = [sentence.split()]
        (swapped,) = swap_letters(parts, generator)
        changed = [(a, b) for a, b in zip(*parts, swapped, strict=True) if a != b]
        ((old, new),) = changed
        assert sorted(old) == sorted(new)
        assert (old[0], old[-1]) == (new[0], new[-1])
        assert sum(a != b for a, b in zip(old, new, strict=True)) == 2
        assert toggle_full_stop(toggle_full_stop(parts, generator), generator) == parts
    assert toggle_full_stop([["a", "ship."]], generator) == [["a", "ship"]]
    assert toggle_full_stop([["no", "."], ["a", "ship"]], generator)[1] == ["a", "ship", "."]
    assert swap_letters([["a", "ship"]], generator) == [["a", "sihp"]]
    assert swap_letters([["an", "eel"]], generator) == [["an", "eel"]]
    parts = [["a", "ship"], ["an", "anchor"], ["the", "pier"]]
    for _ in range(9):
        assert [a == b for a, b in zip(parts, swap_letters(parts, generator), strict=True)].count(
            False
        ) == 1


def test_sentiment_labels_are_known_names() -> None:
    assert sentiment_labels("reviews", ("Neg", "Pos")) == SentimentLabels("Pos", "Neg")
    assert sentiment_labels("sst-2", ("0", "1")) == SentimentLabels("1", "0")
    assert sentiment_labels("cola", ("0", "1")) is None
    assert sentiment_labels("reviews", ("neg", "neutral")) is None
    assert split_text(join_parts([["a", "b"], ["c"]])) == [["a", "b"], ["c"]]


def test_hard_capabilities_are_compared_with_simple_sentences(tmp_path: Path) -> None:
    words = (*WORDS, *" ".join(SLOTS.values()).split())
    weights = dict.fromkeys(f"{SLOTS['good']} {SLOTS['love']}".split(), 9.0)
    weights |= dict.fromkeys(f"{SLOTS['bad']} {SLOTS['hate']}".split(), -9.0)
    inputs = make_inputs(bag_of_tokens_model(weights, words, ("0", "1")))
    labels = {"positive_label": "1", "negative_label": "0"}
    analysis = Analysis.parse({"kind": "suites", **labels, "items_per_suite": 30})
    (report,) = run_analyses(inputs, [analysis], tmp_path, lambda line: None)
    verdicts = {claim.claim: claim.verdict for claim in report.claim_results}
    assert verdicts["simple positive and negative sentences are distinguished"] == "seen"
    assert verdicts["negation is harder than simple sentences"] == "seen"
    (report,) = run_analyses(inputs, [Analysis.parse("suites")], tmp_path, lambda line: None)
    assert [claim.claim for claim in report.claim_results] == [
        "swapping two letters changes some predictions"
    ]


def test_models_and_labels_that_are_not_analysed() -> None:
    assert "fine-tuned" in str(Analysis.parse("suites").not_applicable(make_inputs(small_model())))
    planted = make_inputs(bag_of_tokens_model({}))
    assert Analysis.parse("suites").not_applicable(planted) is None
    wrong = Analysis.parse({"kind": "suites", "positive_label": "yess"})
    expected = "the model has no class 'yess': did you mean 'yes'?"
    assert wrong.not_applicable(planted) == expected
