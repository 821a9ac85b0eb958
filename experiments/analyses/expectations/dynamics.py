"""Copies with one changed layer, and tags that can be memorised."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.dynamics.effective_context import EffectiveContext
from bertwright.analysis.dynamics.feature_extraction import FeatureExtraction
from bertwright.analysis.dynamics.head_pruning import (
    PruningMask,
    part_importances,
    prune_least_important,
)
from bertwright.analysis.dynamics.lottery_tickets import train_ticket
from bertwright.analysis.dynamics.model_change import ModelChange
from bertwright.analysis.dynamics.pretraining_benefit import VARIANTS, PretrainingBenefit
from bertwright.analysis.dynamics.seed_variance import (
    HEAD_SEEDS,
    permuted_variance_fractions,
    variance_fractions,
)
from bertwright.analysis.dynamics.tagging import TaggingData
from bertwright.core.statistics import expected_best
from bertwright.tasks.fine_tuned_model import FineTunedModel
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_same,
)
from experiments.analyses.models import WORDS, small_inputs, small_model
from experiments.analyses.trees import TAGS, random_trees


def expect_model_change() -> Iterator[ExpectedValue]:
    """Check a copy of a model, and a copy with one changed layer."""
    inputs = _inputs_with_copy()
    assert inputs.other_model is not None
    result = ModelChange().run(inputs)
    changes = _values_of_metric(result, "relative parameter change")
    yield expect_equal("parameters of a copy", changes, 0)
    for metric in ("cosine of attention", "cosine of hidden states", "CKA of hidden states"):
        yield expect_equal(f"{metric} of a copy", _values_of_metric(result, metric), 1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in inputs.other_model.encoder.blocks[2].parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += 0.5 * parameter.std(correction=0) * noise.to(parameter.device)
    result = ModelChange().run(inputs)
    changes, cka = (
        _values_of_metric(result, metric)
        for metric in ("relative parameter change", "CKA of hidden states")
    )
    yield expect_equal("layers before the changed one", changes[:2], 0)
    yield expect_above("the changed layer", changes[2], 0.2)
    yield expect_equal("hidden states before it", cka[:3], 1)
    yield expect_below("hidden states after it", cka[3], 0.99)


def expect_effective_context() -> Iterator[ExpectedValue]:
    """Check that a model without attention loses nothing with a shorter context."""
    texts = [" ".join(WORDS[n : n + 12]) for n in range(6)]
    inputs = small_inputs("bert", "encoder.positions={kind: none}", texts=texts)
    with torch.no_grad():
        for name, parameter in inputs.model.encoder.blocks.named_parameters():
            if "attention.output" in name:
                parameter.zero_()
    arrays = EffectiveContext(max_context=8).run(inputs).arrays
    losses = arrays["losses"]
    yield expect_same("contexts", arrays["contexts"].tolist(), [1, 2, 4, 8])
    yield expect_equal("losses by context", losses, losses[:1].repeat(4, 0), 1e-9)


def expect_pretraining_benefit() -> Iterator[ExpectedValue]:
    """Check the splits, the variants, and that training is deterministic."""
    inputs = _tagged_inputs()
    tagging, text_model = TaggingData.from_inputs(inputs), inputs.model.text_model
    splits = (tagging.train, tagging.validation, tagging.test)
    yield expect_same("sentences of the splits", sum(map(len, splits)), len(inputs.texts))
    result = PretrainingBenefit(num_seeds=1, epochs=1).run(inputs)
    yield expect_same("variants", len(result.arrays["num_correct"]), len(VARIANTS))
    yield expect_same("units, which are runs", {f.num_units for f in result.findings}, {1})
    untrained = tagging.fine_tune(text_model, 0, epochs=0)
    yield expect_equal("change without training", _largest_change(inputs, untrained), 0, 1e-7)
    first, second = (
        tagging.num_correct(tagging.fine_tune(text_model, 3, epochs=1)) for _ in range(2)
    )
    yield expect_equal("the same seed twice", first, second, 0)


def expect_feature_extraction() -> Iterator[ExpectedValue]:
    """Check that a frozen encoder stays the same, and that tags of words are learned."""
    inputs = _tagged_inputs(words_determine_tags=True)
    tagging = TaggingData.from_inputs(inputs)
    changes = [
        _largest_change(inputs, tagging.fine_tune(inputs.model.text_model, 0, adaptation=kind))
        for kind in ("frozen", "full")
    ]
    yield expect_equal("change of the frozen encoder", changes[0], 0, 1e-7)
    yield expect_above("change of the fine-tuned encoder", changes[1], 1e-4)
    result = FeatureExtraction(num_seeds=1, epochs=3).run(inputs)
    yield expect_same("units, which are runs", {f.num_units for f in result.findings}, {1})
    num_words = result.arrays["num_words"].sum()
    for name in ("fine-tuned", "frozen"):
        accuracy = result.arrays[name].mean(0).sum() / num_words
        yield expect_above(f"accuracy, {name}", accuracy, 0.9)


def expect_seed_variance() -> Iterator[ExpectedValue]:
    """Check planted variance, p-values of noise, and the expected best of several runs."""
    planted = np.arange(4.0)[:, None] + np.zeros(3)
    for scores, expected in (
        (planted, (1, 0, 0)),
        (planted.T, (0, 1, 0)),
        (0 * planted, (0, 0, 0)),
    ):
        fractions = list(variance_fractions(scores).values())
        yield expect_equal("variance fractions", fractions, expected)
    noise = np.random.default_rng(2).normal(0, 0.1, planted.shape)
    _, p_value = permuted_variance_fractions(planted + noise, 0)[HEAD_SEEDS]
    yield expect_below("p-value of planted variance", p_value, 0.01)
    is_significant = [
        permuted_variance_fractions(np.random.default_rng(n).normal(size=(3, 3)), n)[HEAD_SEEDS][1]
        < 0.05
        for n in range(60)
    ]
    yield expect_below("significant tables of noise", np.mean(is_significant), 0.15)
    scores = np.random.default_rng(0).normal(size=7)
    best = np.array(expected_best(scores.tolist()))
    yield expect_equal("of one run", best[0], scores.mean())
    yield expect_above("of one run more", np.diff(best), 0)
    runs = np.random.default_rng(1).choice(scores, (20_000, 3)).max(1).mean()
    yield expect_equal("of three, against sampling", best[2], runs, 0.02)


def expect_lottery_tickets() -> Iterator[ExpectedValue]:
    """Check masks during and after training, importances, and when pruning stops."""
    inputs = _tagged_inputs(words_determine_tags=True)
    tagging = TaggingData.from_inputs(inputs)
    tuned = tagging.fine_tune(inputs.model.text_model, 0, precision="float32")
    generator = np.random.default_rng(0)
    half = PruningMask(np.array([[True, False] * 2] * 2), np.array([True, False]))
    for prefer_removed in (False, True):
        sample = half.sample_like(generator, prefer_removed)
        yield expect_same("as many heads", int(sample.heads.sum()), 4)
    overlap = half.sample_like(generator, prefer_removed=True).heads & half.heads
    yield expect_same("heads that were kept", int(overlap.sum()), 0)
    ticket = train_ticket(inputs, tagging, half, 0)
    with half.gate(ticket.task_model.encoder):
        gated = tagging.num_correct(ticket)
    with PruningMask.full(inputs.model).gate(ticket.task_model.encoder):
        full = tagging.num_correct(ticket)
    yield expect_equal("predictions after training, gated or not", gated, full, 0)
    yield expect_equal("weights of pruned heads", _output_weights(ticket, 0)[:, 1], 0, 0)
    with torch.no_grad():
        for layer in range(2):
            _output_weights(tuned, layer)[:, 2] = 0
    heads, _ = part_importances(tuned, tagging.train[:4], PruningMask.full(inputs.model))
    yield expect_equal("importance of heads without output", heads[:, 2], 0, 0)
    yield expect_above("importance of others", heads[:, [0, 1, 3]], 1e-9)
    with torch.no_grad():
        for parameter in tuned.task_model.head.parameters():
            parameter.zero_()
    kept = prune_least_important(inputs.model, tuned, tagging).kept_head_fraction
    yield expect_same("heads kept with constant output", kept, 1)


def _tagged_inputs(words_determine_tags: bool = False) -> AnalysisInput:
    """Return a small model and tagged sentences, with tags by word or at random."""
    trees = random_trees(48)
    if words_determine_tags:
        trees = [
            replace(tree, tags=tuple(TAGS[WORDS.index(word) % len(TAGS)] for word in tree.words))
            for tree in trees
        ]
    model = small_model()
    return AnalysisInput(model, encode_texts(model, trees))


def _output_weights(fine_tuned: FineTunedModel, layer: int) -> torch.Tensor:
    """Return the output weights of the heads of a layer, (D, H, d)."""
    weight = (
        fine_tuned.task_model.encoder.blocks[layer]
        .get_submodule("sublayers.attention.output")
        .weight
    )
    assert isinstance(weight, torch.Tensor)
    return weight.detach().view(len(weight), 4, -1)


def _largest_change(inputs: AnalysisInput, fine_tuned: FineTunedModel) -> float:
    """Return the largest change of a parameter of the encoder."""
    before = dict(inputs.model.encoder.named_parameters())
    return max(
        float((parameter - before[name].float()).detach().abs().max())
        for name, parameter in fine_tuned.task_model.encoder.named_parameters()
    )


def _inputs_with_copy() -> AnalysisInput:
    inputs = small_inputs("bert", "encoder.depth.layers=3")
    twin = AnalysedModel("twin", copy.deepcopy(inputs.model.text_model))
    return replace(inputs, other_model=twin)


def _values_of_metric(result: AnalysisResult, metric: str) -> list[float]:
    return [f.value for f in result.findings if f.metric.startswith(metric)]
