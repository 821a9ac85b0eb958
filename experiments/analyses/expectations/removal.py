"""Models in which a single head has an output, and layers without effect."""

from collections.abc import Iterator

import numpy as np
import torch

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.interventions import gate_heads, open_gates
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import MaskedLMProbe, split_probes
from bertwright.analysis.core.result import StoredResult
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.dynamics.layer_redundancy import LayerRedundancy
from bertwright.analysis.heads.fixed_heads import (
    ALL_BUT_ONE_FIXED,
    FIXED_PATTERNS,
    LAYER_FIXED,
    FixedHeads,
    fixed_patterns,
)
from bertwright.analysis.heads.head_ablation import HeadAblation
from bertwright.analysis.heads.head_importance import HeadImportance, head_importances
from bertwright.analysis.heads.learned_gates import GATE_DISTRIBUTION, LearnedGates
from bertwright.analysis.heads.one_head_per_layer import OneHeadPerLayer
from bertwright.analysis.heads.translation_heads import (
    ABLATED_BLEU_DIFFERENCE,
    ATTENTION_TAPS,
    FULL_BLEU,
    AttentionHeads,
    TranslationHeads,
    TranslationProbe,
)
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.metrics.generated_text import bleu, load_sacrebleu, sentence_bleu_counts
from experiments.analyses.attention import PointersByLayer, plant_attention
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_same,
)
from experiments.analyses.models import SENTENCES, small_inputs, small_model

ACTIVE_HEAD = (1, 2)
"""Layer and index of the only head with an output."""


def expect_head_ablation() -> Iterator[ExpectedValue]:
    """Check that removing any head but the active one changes nothing."""
    result = HeadAblation().run(single_active_head_inputs())
    increase = {(f.layer, f.head): f.value for f in result.findings}
    others = [value for head, value in increase.items() if head != ACTIVE_HEAD]
    yield expect_equal("other heads", others, 0, 0)
    yield expect_above("the active head, absolute", abs(increase[ACTIVE_HEAD]), 1e-9)


def expect_one_head_per_layer() -> Iterator[ExpectedValue]:
    """Check that the active head alone is enough."""
    arrays = OneHeadPerLayer().run(single_active_head_inputs()).arrays
    losses, full = arrays["losses"], arrays["full"]
    yield expect_equal("losses with the active head only", losses[ACTIVE_HEAD], full, 0)
    expected = np.broadcast_to(full, losses[0].shape)
    yield expect_equal("losses of a layer without active heads", losses[0], expected, 0)


def expect_head_importance() -> Iterator[ExpectedValue]:
    """Check gradients by central differences, the active head, and the end of the curve."""
    inputs = small_inputs()
    probe, step, head = MaskedLMProbe(inputs.model, inputs.texts), 1e-5, (1, 3)
    losses: list[np.ndarray] = []
    for sign in (1, -1):
        gates = open_gates(inputs.model)
        gates[head] += sign * step
        with gate_heads(inputs.model, gates):
            losses.append(probe.evaluate().loss)
    gradient = np.abs(losses[0] - losses[1]).mean() / (2 * step)
    ratio = head_importances(probe)[head] / gradient
    yield expect_equal("against a central difference", ratio, 1, 1e-5)
    active = single_active_head_inputs()
    importances = head_importances(MaskedLMProbe(active.model, active.texts))
    yield expect_same("important heads", (importances > 0).sum(), 1)
    result = HeadImportance(step_fraction=0.25, num_random_orders=2).run(inputs)
    with gate_heads(inputs.model, 0 * open_gates(inputs.model)):
        expected = split_probes(inputs)[1].evaluate().mean_loss
    ends = [result.arrays[name][-1] for name in ("importance", "oracle")]
    yield expect_equal("ends of the curves", ends, expected, 0)


def expect_layer_redundancy() -> Iterator[ExpectedValue]:
    """Check that a layer without effect can be removed."""
    inputs = small_inputs("gpt-2")
    with torch.no_grad():
        for last in ("attention.output", "feed_forward.down"):
            module = inputs.model.encoder.blocks[1].get_submodule(f"sublayers.{last}")
            for parameter in module.parameters():
                parameter.zero_()
    result = LayerRedundancy().run(inputs)
    increase = [f.value for f in result.findings if "loss" in f.metric and f.layer == 1]
    yield expect_equal("loss increase without the layer", increase, 0, 0)
    yield expect_equal("CKA of its input and output", result.arrays["cka"][1, 2], 1)


def expect_learned_gates() -> Iterator[ExpectedValue]:
    """Check the probability of open gates, and that heads without output are closed."""
    logits = torch.linspace(-4, 4, 9, dtype=torch.float64)
    drawn = (torch.arange(100_000, dtype=torch.float64)[:, None] + 0.5) / 100_000
    expected = (GATE_DISTRIBUTION.gates(logits, drawn) > 0).double().mean(0)
    probabilities = GATE_DISTRIBUTION.open_probability(logits)
    yield expect_equal("probabilities against samples", probabilities, expected, 1e-4)
    inputs = single_active_head_inputs()
    probe = MaskedLMProbe(inputs.model, inputs.texts)
    gates = GATE_DISTRIBUTION.gates(LearnedGates(steps=120).train_gates(probe, 1.0))
    is_inactive = torch.ones_like(gates, dtype=torch.bool)
    is_inactive[ACTIVE_HEAD] = False
    yield expect_below("gates of inactive heads", gates[is_inactive], 0)


def expect_fixed_heads() -> Iterator[ExpectedValue]:
    """Check that heads with planted patterns get these, and that patterns are distributions."""
    inputs = small_inputs()
    heads: PointersByLayer = {
        0: ("self", "previous", "next", "opening"),
        1: ("end", "self", "next", "end"),
    }
    with plant_attention(inputs.model, heads):
        result = FixedHeads().run(inputs)
    patterns = [[FIXED_PATTERNS[n] for n in row] for row in result.arrays["pattern"]]
    expected = [["itself", "previous", "next", "first"], ["last", "itself", "next", "last"]]
    yield expect_same("patterns", patterns, expected)
    yield expect_equal("overlap", result.arrays["overlap"].max(-1), 1)
    for metric in (LAYER_FIXED, ALL_BUT_ONE_FIXED):
        increase = [f.value for f in result.findings if f.metric == metric]
        yield expect_equal(metric, increase, 0, 1e-9)
    allowed, mask = torch.ones(6, 6).tril().bool()[None, None], torch.ones(1, 6).bool()
    for name, pattern in zip(FIXED_PATTERNS, fixed_patterns(allowed, mask), strict=True):
        yield expect_equal(f"sums of {name}", pattern.sum(-1), 1)
        forbidden = pattern[~allowed.expand_as(pattern)]
        yield expect_equal(f"{name}, forbidden keys", forbidden, 0, 0)


def expect_translation_heads() -> Iterator[ExpectedValue]:
    """Check BLEU of summed counts, and gated and zeroed heads."""
    translations, references = SENTENCES[:4], [*SENTENCES[1:4], SENTENCES[0]]
    counts = [sentence_bleu_counts(*pair) for pair in zip(translations, references, strict=True)]
    expected = load_sacrebleu().corpus_score(translations, [references]).score
    yield expect_equal("BLEU of sums", bleu(np.sum(counts, 0)), expected, 1e-9)
    inputs = translation_inputs()
    probe = TranslationProbe(inputs.model, inputs.texts, max_new_tokens=8)
    for part in ATTENTION_TAPS:
        heads = AttentionHeads(inputs.model, part)
        with heads.gate_head((1, 2), keep_only=False):
            gated = probe.translate()
        zero_head(inputs.model, part)
        yield expect_same(f"zeroed head, {part}", probe.translate(), gated)
        with heads.gate_head((1, 2), keep_only=False):
            yield expect_same(f"zeroed and gated head, {part}", probe.translate(), gated)
    result = TranslationHeads(max_new_tokens=8).run(inputs)
    yield expect_same("findings", len(result.findings), 1 + 3 * (2 * 4 + 2))


def expect_learned_translation(result: StoredResult) -> Iterator[ExpectedValue]:
    """Check the toy that reverses texts: it needs cross-attention."""
    yield expect_above("BLEU", result.overall_finding(FULL_BLEU)["value"], 50)
    difference = result.values_by_head(f"{ABLATED_BLEU_DIFFERENCE}: cross-attention").min()
    yield expect_above("BLEU lost without a cross-attention head", -difference, 5)


def translation_inputs() -> AnalysisInput:
    """Return a small untrained model that translates, with pairs."""
    model = small_model("transformer")
    pairs = [Example(a, b) for a, b in zip(SENTENCES, reversed(SENTENCES), strict=True)]
    return AnalysisInput(model, encode_texts(model, pairs))


def zero_head(model: AnalysedModel, part: str) -> None:
    """Zero the output weights of a head of the second layer."""
    stack = model.encoder if part == "encoder" else model.text_model.model.decoder
    name = "cross_attention" if part == "cross-attention" else "attention"
    assert stack is not None, "a model that translates has a decoder"
    weight = stack.get_parameter(f"blocks.1.sublayers.{name}.output.weight")
    with torch.no_grad():
        weight.view(len(weight), model.encoder.num_heads, -1)[:, 2] = 0


def single_active_head_inputs() -> AnalysisInput:
    """Return a small model in which a single head has an output."""
    inputs = small_inputs()
    with torch.no_grad():
        for layer, block in enumerate(inputs.model.encoder.blocks):
            weight = block.get_submodule("sublayers.attention.output").weight
            assert isinstance(weight, torch.Tensor)
            by_head = weight.view(len(weight), inputs.model.num_heads, -1)
            for head in range(inputs.model.num_heads):
                if (layer, head) != ACTIVE_HEAD:
                    by_head[:, head] = 0
    return inputs
