"""Expected values for heads with fixed attention."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bertwright.analysis.attention.attention_mass import ATTENDED_TOKENS, AttentionMass
from bertwright.analysis.attention.entropy import AttentionEntropy
from bertwright.analysis.attention.explanation import (
    PERMUTED,
    WITHOUT_MOST_ATTENDED,
    WITHOUT_RANDOM_POSITION,
    AttentionExplanation,
    permute_weights,
    remove_position,
)
from bertwright.analysis.attention.explanation import UNIFORM as UNIFORM_CHANGE
from bertwright.analysis.attention.gradients import attention_gradient_sizes
from bertwright.analysis.attention.head_clusters import HeadClusters
from bertwright.analysis.attention.patterns import PATTERNS, AttentionPatterns
from bertwright.analysis.attention.rollout import AttentionRollout, attention_rollout
from bertwright.analysis.core.analysis import Analysis
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.analysis.core.result import AnalysisResult
from experiments.analyses.attention import (
    UNIFORM_HEADS,
    AttentionPointer,
    PointersByLayer,
    plant_attention,
)
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_same,
    expect_verdicts,
)
from experiments.analyses.models import small_inputs

HEADS: PointersByLayer = {
    0: ("opening", "end", "self", "uniform"),
    1: ("previous", "next", "uniform", "opening"),
}
"""Heads of the small model."""

VerdictPointers = Mapping[str, Sequence[AttentionPointer]]
"""The target of all heads of each layer, by the verdict that they lead to."""


def expect_attention_mass() -> Iterator[ExpectedValue]:
    """Check the target of each head, and that a uniform head equals its baseline."""
    inputs = small_inputs()
    with plant_attention(inputs.model, HEADS):
        result = AttentionMass().run(inputs)
    lengths = np.array([len(text) for text in inputs.texts])
    values = {target: values_by_head(result, target) for target in ATTENDED_TOKENS}
    yield expect_equal("to the opening", values["opening"][0, 0], 1)
    yield expect_equal("to the end", values["separator"][0, 1], 1)
    yield expect_equal("to itself", values["self"][0, 2], 1)
    # The first position has no previous one, the last no next one: they attend to themselves.
    yield expect_equal(
        "to the previous", values["previous"][1, 0], np.mean((lengths - 1) / lengths)
    )
    yield expect_equal("to the next", values["next"][1, 1], np.mean((lengths - 1) / lengths))
    yield expect_equal("uniform", values["opening"][0, 3], np.mean(1 / lengths))
    yield from _expect_uniform_heads(AttentionMass())
    halves = ("separators get more", "the first position gets more")
    orders: VerdictPointers = {"seen": ("opening", "end"), "opposite": ("end", "opening")}
    for verdict, pointers in orders.items():
        expected = dict.fromkeys(halves, verdict)
        yield from _expect_layer_verdicts(AttentionMass(), pointers, expected)


def expect_entropy() -> Iterator[ExpectedValue]:
    """Check that a uniform head has the logarithm of the length, and a one-hot head nothing."""
    inputs = small_inputs()
    with plant_attention(inputs.model, HEADS):
        values = values_by_head(AttentionEntropy().run(inputs), "entropy")
    lengths = np.array([len(text) for text in inputs.texts])
    yield expect_equal("of a uniform head", values[0, 3], np.mean(np.log(lengths)), 1e-5)
    yield expect_below("of a one-hot head", abs(values[0, 2]), 0.01)
    yield expect_below("of any head", values, np.log(lengths.max()) + 1e-6)
    yield from _expect_uniform_heads(AttentionEntropy())
    orders: VerdictPointers = {"seen": ("uniform", "self"), "opposite": ("self", "uniform")}
    for verdict, pointers in orders.items():
        expected = {"attend more broadly": verdict}
        yield from _expect_layer_verdicts(AttentionEntropy(), pointers, expected)


def expect_patterns() -> Iterator[ExpectedValue]:
    """Check the pattern of every head."""
    inputs = small_inputs()
    with plant_attention(inputs.model, HEADS):
        fractions = AttentionPatterns().run(inputs).arrays["fractions"]
    patterns = [[PATTERNS[n] for n in row] for row in fractions.argmax(-1)]
    expected = [
        ["vertical", "vertical", "diagonal", "heterogeneous"],
        ["diagonal", "diagonal", "heterogeneous", "vertical"],
    ]
    yield expect_same("patterns", patterns, expected)
    yield expect_equal("sums of fractions", fractions.sum(-1), 1)
    orders: VerdictPointers = {"seen": ("self", "next"), "opposite": ("uniform", "uniform")}
    for verdict, pointers in orders.items():
        expected = {"form no simple pattern": verdict}
        yield from _expect_layer_verdicts(AttentionPatterns(), pointers, expected)


def expect_clusters() -> Iterator[ExpectedValue]:
    """Check the distances of equal heads, and of heads that share almost nothing."""
    inputs = small_inputs()
    heads: PointersByLayer = {
        0: ("opening", "opening", "uniform", "self"),
        1: ("opening", "uniform", "self", "end"),
    }
    with plant_attention(inputs.model, heads):
        distances = HeadClusters(max_texts=3).run(inputs).arrays["distances"]
    equal = [distances[pair] for pair in ((0, 1), (0, 4), (2, 5), (3, 6))]
    yield expect_equal("symmetry", distances, distances.T)
    yield expect_equal("of equal heads", equal, 0)
    yield expect_below("of any two", distances, np.log(2) + 1e-9)
    # Attention to itself and to the first position agree at the first position only.
    lengths = [len(text) for text in inputs.texts[:3]]
    expected = np.log(2) * (sum(lengths) - len(lengths)) / sum(lengths)
    yield expect_equal("of heads that share one position", distances[0, 3], expected)


def expect_rollout() -> Iterator[ExpectedValue]:
    """Check the product over layers."""
    shifted = torch.roll(torch.eye(5), 1, 0)[None]
    for number, rollout in enumerate(attention_rollout([shifted] * 3), start=1):
        expected = torch.linalg.matrix_power((shifted[0] + torch.eye(5)) / 2, number)
        yield expect_equal(f"of {number} layers with shifted attention", rollout[0], expected)
    inputs = small_inputs()
    itself: Sequence[AttentionPointer] = ("self",) * 4
    opening: Sequence[AttentionPointer] = ("opening",) * 4
    with plant_attention(inputs.model, {0: itself, 1: opening}):
        fractions = AttentionRollout().run(inputs).arrays["fractions"]
    lengths = np.array([len(text) for text in inputs.texts])
    first = np.array([1, np.mean(1 / lengths), np.mean(1 / lengths)])
    yield expect_equal("of a layer that attends to itself", fractions[0], first)
    yield expect_equal("to the opening after it", fractions[1, 1], 0.5 + np.mean(0.5 / lengths))
    expected = {"less to the position itself": "seen"}
    yield from _expect_layer_verdicts(AttentionRollout(), ("self", "opening"), expected)


def expect_explanation() -> Iterator[ExpectedValue]:
    """Check that unread attention explains nothing, and that changes of weights are right."""
    inputs = small_inputs()
    with torch.no_grad():
        for name, parameter in inputs.model.encoder.blocks.named_parameters():
            if "attention.output" in name:
                parameter.zero_()
    result = AttentionExplanation(num_permutations=2, steps=3).run(inputs)
    for name in (PERMUTED, UNIFORM_CHANGE, WITHOUT_MOST_ATTENDED, WITHOUT_RANDOM_POSITION):
        yield expect_equal(f"prediction change, {name}", result.arrays[name], 0, 1e-12)
    yield expect_above("attention change", result.arrays["adversary"][:, 0], 1e-4)
    weights = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.0, 0.1, 0.2, 0.7]], dtype=torch.float64)
    permuted = permute_weights(torch.Generator().manual_seed(0))(weights)
    yield expect_equal("sorted weights", permuted.sort(-1)[0], weights.sort(-1)[0], 0)
    yield expect_equal("forbidden keys", permuted[weights == 0], 0, 0)
    yield expect_equal("a removed key", remove_position(0)(weights)[0], [0, 0.6, 0.4, 0])


def expect_gradients() -> Iterator[ExpectedValue]:
    """Check zero gradients of heads without output, and others against central differences."""
    inputs = small_inputs()
    step, layer, head = 1e-5, 1, 2
    with torch.no_grad():
        for block in inputs.model.encoder.blocks:
            weight = block.get_submodule("sublayers.attention.output").weight
            assert isinstance(weight, torch.Tensor)
            weight.view(len(weight), inputs.model.num_heads, -1)[:, 0] = 0
    gradients = attention_gradient_sizes(MaskedLMProbe(inputs.model, inputs.texts))
    yield expect_equal("of heads without output", gradients[:, :, 0], 0, 0)
    yield expect_above("of others", gradients[:, :, 1:], 1e-12)
    probe = MaskedLMProbe(inputs.model, inputs.texts[:1])
    sizes: list[float] = []
    for query in range(len(inputs.texts[0])):
        losses: list[float] = []
        for sign in (1, -1):

            def change(
                weights: torch.Tensor, query: int = query, by: float = sign * step
            ) -> torch.Tensor:
                changed = weights.clone()
                changed[:, head, query, 0] += by
                return changed

            with inputs.model.encoder.replace(f"blocks.{layer}.attention.weights", change):
                losses.append(float(probe.evaluate().loss.sum()))
        sizes.append(abs(losses[0] - losses[1]) / (2 * step))
    size = attention_gradient_sizes(probe)[0, layer, head, 0]
    yield expect_equal("against central differences", size, np.mean(sizes), 1e-7)


def values_by_head(result: AnalysisResult, metric: str) -> np.ndarray:
    """Return the values of a metric (layers, heads) of the small model."""
    values = {(f.layer, f.head): f.value for f in result.findings if f.metric == metric}
    return np.array([[values[layer, head] for head in range(4)] for layer in range(2)])


def _expect_layer_verdicts(
    analysis: Analysis, pointers: Sequence[AttentionPointer], expected: Mapping[Any, str]
) -> Iterator[ExpectedValue]:
    """Expect verdicts if all heads of a layer have the same target."""
    inputs = small_inputs()
    heads: dict[int, Sequence[AttentionPointer]] = {}
    for layer, pointer in enumerate(pointers):
        heads[layer] = (pointer,) * 4
    with plant_attention(inputs.model, heads):
        result = analysis.run(inputs)
    yield from expect_verdicts(" then ".join(pointers), analysis, result, expected)


def _expect_uniform_heads(analysis: Analysis) -> Iterator[ExpectedValue]:
    for system in ("bert", "gpt-2"):
        inputs = small_inputs(system)
        with plant_attention(inputs.model, UNIFORM_HEADS):
            findings = [f for f in analysis.run(inputs).findings if f.baseline]
        differences = [f.value - f.baseline.value for f in findings if f.baseline]
        yield expect_above("findings with a baseline", len(differences), 1)
        yield expect_equal(f"uniform heads of {system} and their baseline", differences, 0)
