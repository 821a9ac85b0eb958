"""Removing heads: gates equal zeros in the output matrix, and importance is a gradient."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.interventions import gate_heads, open_gates
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import MaskedLMProbe, prediction_probe, split_probes
from bertwright.analysis.core.result import Count, StoredResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.dynamics.layer_redundancy import LayerRedundancy, linear_cka, remove_part
from bertwright.analysis.heads.fixed_heads import FIXED_PATTERNS, fixed_patterns
from bertwright.analysis.heads.head_ablation import HeadAblation, losses_by_head
from bertwright.analysis.heads.head_importance import (
    HeadImportance,
    head_importances,
    normalise_by_layer,
)
from bertwright.analysis.heads.learned_gates import LearnedGates
from bertwright.analysis.heads.one_head_per_layer import OneHeadPerLayer
from bertwright.core.significance import split_halves
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.heads.kinds import LinearHeadConfig
from bertwright.tasks.outputs import ClassificationOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec, TaskModel
from experiments.analyses.models import SENTENCES, small_inputs, small_model

ACTIVE = (1, 2)
"""Layer and index of the only head with an output."""


def make_inputs(system: str = "bert", single_head: bool = False) -> AnalysisInput:
    model = small_model(system)
    if single_head:
        with torch.no_grad():
            for layer, block in enumerate(model.encoder.blocks):
                weight = block.get_submodule("sublayers.attention.output").weight
                by_head = weight.view(len(weight), model.num_heads, -1)
                for head in range(model.num_heads):
                    if (layer, head) != ACTIVE:
                        by_head[:, head] = 0
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))


@pytest.mark.parametrize("system", ["bert", "gpt-2", "albert", "xlnet"])
def test_open_gates_change_nothing(system: str) -> None:
    inputs = make_inputs(system)
    probe = MaskedLMProbe(inputs.model, inputs.texts)
    scores = probe.evaluate()
    with gate_heads(inputs.model, open_gates(inputs.model)):
        np.testing.assert_array_equal(probe.evaluate().loss, scores.loss)
    assert (scores.num_targets >= 1).all()
    assert scores.mean_loss > 0


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_other_texts_in_a_batch_change_nothing(system: str) -> None:
    inputs = make_inputs(system)
    long = encode_texts(inputs.model, [Example(" ".join(SENTENCES))])
    together = MaskedLMProbe(inputs.model, [inputs.texts[0], *long]).evaluate()
    alone = MaskedLMProbe(inputs.model, inputs.texts[:1]).evaluate()
    assert together.num_targets[1] > together.num_targets[0]
    np.testing.assert_allclose(together.loss[0], alone.loss[0], rtol=1e-9)


def test_classifiers_are_scored_by_their_classes() -> None:
    inputs = make_inputs(single_head=True)
    task = Task("planted", ClassificationOutput(), labels=("no", "yes"))
    recipe, tokenizer = inputs.model.text_model.model.recipe, inputs.model.tokenizer
    head = HeadSpec(LinearHeadConfig(pooling="mean"), 2)
    task_model = TaskModel(recipe, tokenizer.vocab_size, head)
    task_model.encoder.load_state_dict(inputs.model.encoder.state_dict())
    fine_tuned = FineTunedModel(task_model, tokenizer, task, precision="float32")
    model = AnalysedModel("planted", fine_tuned)
    scores = prediction_probe(AnalysisInput(model, inputs.texts)).evaluate()
    assert scores.num_correct.tolist() == scores.num_targets.tolist() == [1] * len(inputs.texts)
    labelled = [replace(t, source=Example("", label=x)) for t in inputs.texts for x in task.labels]
    loss = prediction_probe(AnalysisInput(model, labelled)).evaluate().loss
    probabilities = np.exp(-loss)
    np.testing.assert_allclose(probabilities[::2] + probabilities[1::2], 1, rtol=1e-6)
    losses = HeadAblation().run(AnalysisInput(model, inputs.texts)).arrays["losses"]
    has_changed = np.abs(losses - scores.loss).max(-1) > 0
    assert np.argwhere(has_changed).tolist() == [list(ACTIVE)]


def test_a_closed_gate_equals_zero_output_weights() -> None:
    inputs = make_inputs()
    probe, gates = MaskedLMProbe(inputs.model, inputs.texts), open_gates(inputs.model)
    gates[ACTIVE] = 0
    with gate_heads(inputs.model, gates):
        closed = probe.evaluate().loss
    weight = inputs.model.encoder.blocks[1].get_submodule("sublayers.attention.output").weight
    with torch.no_grad():
        weight.view(len(weight), inputs.model.num_heads, -1)[:, ACTIVE[1]] = 0
    np.testing.assert_allclose(probe.evaluate().loss, closed, rtol=1e-12)


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
def test_importance_is_the_gradient_of_the_loss_of_each_text(system: str) -> None:
    inputs = make_inputs(system)
    probe, step = MaskedLMProbe(inputs.model, inputs.texts), 1e-5
    importances = head_importances(probe)
    for head in ((0, 0), (1, 3)):
        losses = []
        for sign in (1, -1):
            gates = open_gates(inputs.model)
            gates[head] += sign * step
            with gate_heads(inputs.model, gates):
                losses.append(probe.evaluate().loss)
        gradient = np.abs(losses[0] - losses[1]) / (2 * step)
        assert importances[head] == pytest.approx(gradient.mean(), rel=1e-5)
    assert np.linalg.norm(normalise_by_layer(importances), axis=1) == pytest.approx(1)


@pytest.mark.parametrize("num_steps", [49, 98])
def test_the_curve_has_no_point_twice(num_steps: int) -> None:
    analysis = HeadImportance(step_fraction=1 / num_steps, num_random_orders=1)
    fractions = analysis.run(make_inputs()).arrays["fractions"]
    assert len(fractions) == num_steps + 1


def test_the_curve_ends_without_heads() -> None:
    inputs = make_inputs()
    analysis = HeadImportance(step_fraction=0.25, num_random_orders=2)
    arrays = analysis.run(inputs).arrays
    assert arrays["fractions"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    train, test = split_probes(inputs)
    assert arrays["oracle"][0] == test.evaluate().mean_loss
    with gate_heads(inputs.model, 0 * open_gates(inputs.model)):
        expected = test.evaluate().mean_loss
    for name in ("importance", "oracle"):
        assert arrays[name][-1] == expected
    assert (arrays["random"][:, -1] == expected).all()
    order = np.argsort(losses_by_head(train).sum(-1), axis=None)
    gates = open_gates(inputs.model)
    gates.view(-1)[order[:2].copy()] = 0
    with gate_heads(inputs.model, gates):
        assert arrays["oracle"][1] == pytest.approx(test.evaluate().mean_loss, rel=1e-12)


def test_the_only_active_head_is_enough_and_the_best_is_chosen_on_other_texts() -> None:
    inputs = make_inputs(single_head=True)
    result = OneHeadPerLayer().run(inputs)
    losses, full = result.arrays["losses"], result.arrays["full"]
    others = [head for head in range(4) if head != ACTIVE[1]]
    assert (losses[ACTIVE] == full).all()
    assert (losses[0] == full).all()
    assert (losses[ACTIVE[0], others] != full).any(-1).all()
    train, test = split_halves(len(inputs.texts), inputs.seed)
    best, num_targets = result.findings[1], result.arrays["num_targets"][test]
    assert best.head == losses[1][:, train].sum(1).argmin()
    increase = (losses[1, best.head, test] - full[test]).sum() / num_targets.sum()
    assert best.value == pytest.approx(increase)


@pytest.mark.parametrize("system", ["bert", "gpt-2", "albert", "xlnet"])
@pytest.mark.processor
def test_a_skipped_layer_returns_its_input(system: str) -> None:
    model = small_model(system)
    token_ids = torch.tensor([[2, 6, 7, 3]])
    with (
        torch.inference_mode(),
        remove_part(model, 0, "layer"),
        model.encoder.record("blocks.0.input", "blocks.1.input") as values,
    ):
        model.encoder(token_ids)
    assert torch.equal(values["blocks.0.input"], values["blocks.1.input"])


def test_cka_is_invariant_to_rotation_and_scale() -> None:
    generator = np.random.default_rng(0)
    states = generator.normal(size=(200, 6))
    rotation = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    assert linear_cka(states, 3 * states @ rotation + 1) == pytest.approx(1)
    assert np.isnan(linear_cka(states[:3], states[:3]))
    assert linear_cka(states[:4], states[:4]) == pytest.approx(1)
    assert np.isnan(linear_cka(np.ones((9, 2)), states[:9]))


def test_cka_of_independent_states_is_0_on_average() -> None:
    generator = np.random.default_rng(0)
    for words in (8, 40):
        drawn = [linear_cka(*generator.normal(size=(2, words, 30))) for _ in range(400)]
        assert np.mean(drawn) == pytest.approx(0, abs=4 * np.std(drawn) / 20)


def test_cka_counts_pairs_of_different_words() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(9, 3)), generator.normal(size=(9, 5))
    kernels = [x @ x.T * (1 - np.eye(9)) for x in (first, second)]

    def dependence(k: np.ndarray, m: np.ndarray) -> float:
        rest = k.sum() * m.sum() / (8 * 7) - 2 / 7 * (k @ m).sum()
        return np.trace(k @ m) + rest

    both = dependence(*kernels)
    alone = np.prod([dependence(k, k) for k in kernels])
    assert linear_cka(first, second) == pytest.approx(both / np.sqrt(alone))


def test_gates_of_inactive_heads_stay_without_a_penalty() -> None:
    inputs = make_inputs(single_head=True)
    logits = LearnedGates(steps=10).train_gates(MaskedLMProbe(inputs.model, inputs.texts), 0.0)
    is_inactive = torch.ones_like(logits, dtype=torch.bool)
    is_inactive[ACTIVE] = False
    assert (logits[is_inactive] == 2.0).all()


def test_fixed_patterns_ignore_padding_and_follow_the_paper() -> None:
    for size in (5, 9):
        mask = torch.arange(9)[None] < size
        allowed = (mask[:, None] & mask[..., None])[:, None]
        padded, alone = (
            fixed_patterns(allowed, mask),
            fixed_patterns(allowed[..., :size, :size], mask[:, :size]),
        )
        for first, second in zip(padded, alone, strict=True):
            assert torch.equal(first[..., :size, :size], second.expand(1, 1, size, size))
    left, right = (alone[FIXED_PATTERNS.index(name)][0, 0] for name in ("left", "right"))
    cubes = torch.arange(1, 9, dtype=torch.float64) ** 3
    torch.testing.assert_close(left[4, :4], cubes[:4] / cubes[:4].sum())
    torch.testing.assert_close(right[4, 5:], cubes[:4].flip(0) / cubes[:4].sum())


def test_open_gates_are_no_evidence_for_prunable_heads() -> None:
    inputs = small_inputs()
    analysis = LearnedGates(penalties=(1e-9, 1e-8), steps=2)
    result = analysis.run(inputs)
    stored = StoredResult({}, [f.as_dict() for f in result.findings], result.arrays)
    (claim,) = analysis.check_claims(stored)
    assert (claim.value, claim.verdict == "seen") == (0.0, False)


def test_a_redundant_layer_has_its_whole_interval_below_a_hundredth_of_the_loss() -> None:
    def increase(low: float, high: float, part: str = "layer") -> dict[str, Any]:
        baseline = {"name": "loss", "value": 2.0}
        fields = {"value": (low + high) / 2, "interval": (low, high), "baseline": baseline}
        return {"metric": f"loss increase without {part}", **fields}

    redundant = [increase(-0.5, 0.019), increase(-0.2, -0.1)]
    others = [increase(0.01, 0.021), increase(-0.9, 0.9), increase(0.1, 0.2)]
    heads = [increase(-0.1, 0.0, "attention")]
    stored = StoredResult({"num_texts": 50}, [*redundant, *others, *heads], {"cka": np.eye(3)})
    claims = {c.claim: c for c in LayerRedundancy().check_claims(stored)}
    claim = claims["some layer can be removed for less than 1% of the loss"]
    assert claim.count == Count(2, 5, "layers")
    assert (claim.value, claim.verdict) == (2, "seen")
    none = StoredResult({"num_texts": 50}, others, {"cka": np.eye(3)})
    values = [c.value for c in LayerRedundancy().check_claims(none) if c.count is not None]
    assert values == [0]


def test_adjacent_layers_are_compared_with_all_others() -> None:
    cka = np.array([[1, 0.9, 0.4, 0.1], [0.9, 1, 0.8, 0.7], [0.4, 0.8, 1, 0.7], [0.1, 0.7, 0.7, 1]])
    stored = StoredResult({"num_texts": 50}, [], {"cka": cka})
    claims = {c.claim: c for c in LayerRedundancy().check_claims(stored)}
    claim = claims["adjacent layers are more alike than others"]
    assert claim.value == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert claim.baseline == pytest.approx((0.4 + 0.1 + 0.7) / 3)
