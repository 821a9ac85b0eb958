"""Triggers: their tokens, the search, and scores with a trigger."""

from pathlib import Path

import numpy as np
import pytest

from bertwright.analysis.behaviour.triggers.trigger_search import (
    MASKED_TOKENS,
    TriggerProbe,
    TriggerSearch,
    allowed_tokens,
    prepend_trigger,
    probes_by_class,
    token_embedding_matrix,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.analysis.core.runner import run_analyses
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs import ClozeOutput
from experiments.analyses.classifiers import bag_of_tokens_model
from experiments.analyses.models import SENTENCES, WORDS, small_model

TEXTS = [Example(text) for text in SENTENCES for _ in range(4)]


def make_inputs(model: AnalysedModel, texts: list[Example] = TEXTS) -> AnalysisInput:
    return AnalysisInput(model, encode_texts(model, texts))


def token_id(model: AnalysedModel, word: str) -> int:
    token = model.tokenizer.token_to_id(word)
    assert token is not None
    return token


def make_probe(model: AnalysedModel, label: int | None) -> TriggerProbe:
    texts = make_inputs(model).texts
    return TriggerProbe(model, texts, None if label is None else [label] * len(texts), 0)


def search(model: AnalysedModel, num_candidates: int) -> TriggerSearch:
    return TriggerSearch(token_embedding_matrix(model), allowed_tokens(model), num_candidates)


def test_a_step_never_lowers_the_loss_and_keeps_the_trigger_if_nothing_is_better() -> None:
    model = small_model()
    probe, trigger = make_probe(model, None), (token_id(model, "the"),) * 2
    better = search(model, 4).step(probe, trigger)
    assert probe.evaluate(better).mean_loss >= probe.evaluate(trigger).mean_loss
    constant = bag_of_tokens_model({}, bias=1.0)
    start = (token_id(constant, "ship"),) * 2
    assert search(constant, 30).step(make_probe(constant, 1), start) == start


def test_triggers_have_no_special_tokens_or_labels() -> None:
    model = small_model()
    allowed = allowed_tokens(model, {"lamp"})
    written = {model.tokenizer.id_to_token(n) for n in allowed.nonzero()[:, 0].tolist()}
    assert written == set(WORDS) - {"lamp"}
    generator = np.random.default_rng(0)
    trigger = search(model, 1).sample_trigger(500, generator)
    assert not set(trigger) & model.tokenizer.special_tokens.all


@pytest.mark.parametrize("system", ["bert", "xlnet"])
def test_a_trigger_keeps_the_masked_positions(system: str) -> None:
    model = small_model(system)
    start = model.text_model.model.recipe.assembly.text_start
    texts = encode_texts(model, [Example("the old keeper lights the lamp", "a ship leaves .")])
    for trigger in ((), (9,), (9, 10, 11)):
        (text,) = triggered = [prepend_trigger(trigger, text) for text in texts]
        assert text.token_ids[start : start + len(trigger)] == list(trigger)
        assert (
            len(text.token_ids)
            == len(text.segment_ids)
            == len(text.word_ids)
            == len(text.category_masks["first"])
        )
        opening = 0 if start else len(text) - 1
        assert text.category_masks["opening"].nonzero()[0].tolist() == [opening]
        assert text.token_ids[opening] == model.tokenizer.special_tokens.start
        positions = MaskedLMProbe(model, triggered).target_positions(0)
        expected = MaskedLMProbe(model, texts).target_positions(0)
        assert [position - len(trigger) for position in positions] == expected


def test_targets_are_labels_or_predictions() -> None:
    model = bag_of_tokens_model({"lamp": 5.0}, bias=-0.1)
    texts = [Example("the lamp"), Example("the boat"), Example("the boat", label="yes")] * 4
    probes = probes_by_class(model, make_inputs(model, texts).texts, 0)
    assert {label: len(probe.texts) for label, probe in probes.items()} == {"no": 4, "yes": 8}


def test_triggers_are_tested_on_texts_that_did_not_choose_them(tmp_path: Path) -> None:
    model = bag_of_tokens_model({"lamp": 5.0, "wind": -90.0}, bias=1.0)
    inputs = make_inputs(model)
    settings = {"kind": "triggers", "trigger_length": 1, "steps": 1, "num_random_triggers": 30}
    result = Analysis.parse(settings).run(inputs)
    findings = {finding.metric: finding for finding in result.findings}
    accuracy = findings["accuracy with the trigger, yes"]
    assert (accuracy.value, accuracy.note) == (0, "wind")
    assert accuracy.baseline is not None
    assert accuracy.baseline.value > 0.8
    assert accuracy.difference_interval is not None
    assert accuracy.difference_interval[1] < 0
    assert findings["accuracy without a trigger, yes"].value == 1
    (report,) = run_analyses(inputs, [Analysis.parse(settings)], tmp_path, lambda line: None)
    assert [claim.verdict for claim in report.claim_results] == ["seen", "seen"]


def test_texts_are_truncated_to_make_room_for_the_trigger() -> None:
    model = small_model("bert", "encoder.positions.size=16", "assembly.length=16")
    inputs = AnalysisInput(model, encode_texts(model, [Example(" ".join(WORDS))] * 6))
    assert max(map(len, inputs.texts)) == 16
    result = Analysis.parse({"kind": "triggers", "steps": 1, "num_candidates": 2}).run(inputs)
    assert result.arrays["accuracy_by_step"].shape == (1, 2)
    assert any(finding.metric.endswith(MASKED_TOKENS) for finding in result.findings)


def test_models_and_texts_that_are_not_analysed() -> None:
    not_applicable = Analysis.parse("triggers").not_applicable
    assert not_applicable(make_inputs(small_model())) is None
    assert "masked language model" in str(not_applicable(make_inputs(small_model("gpt-2"))))
    assert "4 texts" in str(not_applicable(make_inputs(small_model(), TEXTS[:3])))
    planted = bag_of_tokens_model({})
    assert not_applicable(make_inputs(planted)) is None
    assert "8 texts" in str(not_applicable(make_inputs(planted, TEXTS[:7])))
    assert isinstance(planted.text_model, FineTunedModel)
    object.__setattr__(planted.text_model.task, "output_type", ClozeOutput())
    assert "template" in str(not_applicable(make_inputs(planted)))
