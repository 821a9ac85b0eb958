"""Distillation losses against the equations of their papers, computed in NumPy."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.compression.distillation.losses import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
    DistillationTerms,
)
from bertwright.core.errors import UserError
from bertwright.modules.vector_projection import VectorProjectionConfig
from small_recipe import small

SEQUENCES, LENGTH, WIDTH, HEADS, HEAD_WIDTH = 3, 5, 32, 4, 8
MASK = np.arange(LENGTH) < np.array([[5], [1], [4]])
GENERATOR = np.random.default_rng(0)


def normal(*shape: int) -> NDArray[np.float64]:
    return GENERATOR.normal(0, 1, shape).astype(np.float32).astype(np.float64)


STUDENT_LOGITS, TEACHER_LOGITS = 3 * normal(4, 6), 3 * normal(4, 6)
# Layer 1 of the student is compared with layer 2 of the teacher, and so on.
STUDENT_STATES, TEACHER_STATES = 2 * normal(3, SEQUENCES, LENGTH, WIDTH) + 1, normal(5, 3, 5, WIDTH)
STUDENT_PARTS, TEACHER_PARTS = (normal(3, SEQUENCES, HEADS, LENGTH, HEAD_WIDTH) for _ in range(2))
STUDENT_SCORES, TEACHER_SCORES = (normal(2, SEQUENCES, HEADS, LENGTH, LENGTH) for _ in range(2))
PAIRS = ((1, 2), (2, 4))


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def softmax_of_real(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Softmax over the keys that are no padding."""
    return softmax(np.where(MASK[:, None, None, :], scores, -np.inf))


def tensors(values: Mapping[str, NDArray[np.float64]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value).float() for name, value in values.items()}


def hidden_values(states, parts, scores, pair_index: int) -> dict[str, NDArray[np.float64]]:
    """Return the values of all taps; attention differs between the layers of a model."""
    values = {"embeddings.output": states[0]}
    for layer in range(1, len(states)):
        attention = f"blocks.{layer - 1}.attention"
        values[f"blocks.{layer - 1}.residual"] = states[layer]
        if not len(parts):
            continue
        values |= dict(
            zip((f"{attention}.{p}" for p in ("query", "key", "value")), parts, strict=True)
        )
        index = [pair[pair_index] for pair in PAIRS]
        layer_scores = scores[index.index(layer)] if layer in index else np.zeros_like(scores[0])
        values[f"{attention}.scores"] = layer_scores
        values[f"{attention}.weights"] = softmax_of_real(layer_scores)
    return values


INPUTS = DistillationInputs(
    *(torch.from_numpy(x).float() for x in (STUDENT_LOGITS, TEACHER_LOGITS)),
    *(torch.from_numpy(x).float() for x in (STUDENT_LOGITS, TEACHER_LOGITS)),
    tensors(hidden_values(STUDENT_STATES, STUDENT_PARTS, STUDENT_SCORES, 0)),
    tensors(hidden_values(TEACHER_STATES, TEACHER_PARTS, TEACHER_SCORES, 1)),
    torch.from_numpy(MASK),
    0.0,
)


def term_of(settings: Mapping[str, object]) -> DistillationTerm:
    """Return the term for a student of two layers and a teacher of four."""
    student, teacher = (
        small("bert", f"encoder.depth.layers={layers}", "encoder.width=32").encoder
        for layers in (2, 4)
    )
    return DistillationTermConfig.parse(settings).build(student, teacher)


def loss_of(settings: Mapping[str, object]) -> float:
    """Return the loss, given the values that the term names as its taps, and no others."""
    term = term_of(settings)
    student = {tap: INPUTS.student_values[tap] for tap in term.student_taps}
    teacher = {tap: INPUTS.teacher_values[tap] for tap in term.teacher_taps}
    return term(replace(INPUTS, student_values=student, teacher_values=teacher)).item()


@pytest.mark.parametrize("temperature", [1.0, 2.0, 10.0])
def test_soft_targets(temperature: float) -> None:
    """Hinton et al. 2015: cross entropy at temperature T, times T^2, less the teacher's entropy."""
    teacher, student = (softmax(x / temperature) for x in (TEACHER_LOGITS, STUDENT_LOGITS))
    cross_entropy, entropy = (-(teacher * np.log(p)).sum() for p in (student, teacher))
    settings = {"kind": "outputs", "temperature": temperature}
    expected = temperature**2 * (cross_entropy - entropy)
    assert loss_of(settings) == pytest.approx(expected, rel=1e-5)
    assert loss_of({**settings, "mean": True}) * 6 == pytest.approx(expected, rel=1e-5)


def test_squared_outputs() -> None:
    """Tang et al. 2019, equation 6: the squared distance of logits."""
    expected = ((STUDENT_LOGITS - TEACHER_LOGITS) ** 2).sum()
    settings = {"kind": "outputs", "distance": "squared"}
    assert loss_of(settings) == pytest.approx(expected, rel=1e-5)
    # Published code divides by the number of classes.
    assert loss_of({**settings, "mean": True}) * 6 == pytest.approx(expected, rel=1e-5)


def paired_states() -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    return [(STUDENT_STATES[i], TEACHER_STATES[j]) for i, j in PAIRS]


def test_patient_distillation() -> None:
    """Sun et al. 2019, equation 7: states of [CLS], each divided by its length."""
    expected = 0.0
    for student, teacher in paired_states():
        for a, b in zip(student[:, 0], teacher[:, 0], strict=True):
            expected += ((a / np.linalg.norm(a) - b / np.linalg.norm(b)) ** 2).sum()
    settings = {"kind": "states", "positions": "first", "normalisation": "length"}
    assert loss_of(settings) * WIDTH == pytest.approx(expected, rel=1e-5)


def test_states_are_compared_at_every_real_position() -> None:
    """Jiao et al. 2020, equation 8: the mean squared error, without normalisation."""
    expected = sum((((a - b) ** 2).mean(-1) * MASK).sum() for a, b in paired_states())
    assert loss_of({"kind": "states"}) == pytest.approx(expected, rel=1e-5)
    embeddings = ((STUDENT_STATES[0] - TEACHER_STATES[0]) ** 2).mean(-1) * MASK
    with_embeddings = loss_of({"kind": "states", "layers": {"embeddings": True}})
    assert with_embeddings == pytest.approx(expected + embeddings.sum(), rel=1e-5)


def encoder_of_widths(*widths: int) -> Any:
    """Return what a term reads of an encoder whose layers, from 0 on, have these widths."""
    depth = SimpleNamespace(sublayer_orders=lambda: ["sf"] * (len(widths) - 1))
    return SimpleNamespace(hidden_widths=list(widths), depth=depth)


@pytest.mark.parametrize("projection", ["shared", "per-layer"])
def test_narrower_states_are_projected(projection: str) -> None:
    """Jiao et al. 2020, equation 8: the distance of H W, by one W in the released code."""
    config = DistillationTermConfig.parse({"kind": "states", "projection": projection})
    term = config.build(encoder_of_widths(16, 16, 16), encoder_of_widths(*[WIDTH] * 5))
    term.init(0)
    weights = [p.detach().double().numpy() for p in term.parameters() if p.ndim == 2]
    assert [w.shape for w in weights] == [(WIDTH, 16)] * (1 if projection == "shared" else 2)
    assert not any(p.any() for p in term.parameters() if p.ndim == 1)
    # A projection keeps the size of the entries.
    assert [w.std() for w in weights] == pytest.approx([16**-0.5] * len(weights), rel=0.15)
    assert (weights[0] == weights[-1]).all() == (projection == "shared")
    narrow = STUDENT_STATES[..., :16]
    expected = sum(
        (((narrow[layer] @ weight.T - TEACHER_STATES[other]) ** 2).mean(-1) * MASK).sum()
        for (layer, other), weight in zip(PAIRS, (weights[0], weights[-1]), strict=True)
    )
    values = tensors({n: v[..., :16] for n, v in hidden_values(STUDENT_STATES, (), (), 0).items()})
    loss = term(replace(INPUTS, student_values=values)).item()
    assert loss == pytest.approx(expected, rel=1e-4)


def test_layers_of_several_widths_have_separate_projections() -> None:
    student, teacher = encoder_of_widths(16, 16, 24), encoder_of_widths(*[WIDTH] * 5)
    settings = {"kind": "states", "projection": "per-layer"}
    term = DistillationTermConfig.parse(settings).build(student, teacher)
    shapes = [tuple(p.shape) for p in term.parameters() if p.ndim == 2]
    assert shapes == [(WIDTH, 16), (WIDTH, 24)]
    with pytest.raises(UserError, match="several widths cannot share"):
        DistillationTermConfig.parse({"kind": "states"}).build(student, teacher)


def test_standardised_states() -> None:
    """Sun et al. 2020, equation 4, on states of mean 0 and deviation 1 (layer normalisation)."""

    def standardised(states: NDArray[np.float64]) -> NDArray[np.float64]:
        return (states - states.mean(-1, keepdims=True)) / states.std(-1, keepdims=True)

    expected = sum(
        (((standardised(a) - standardised(b)) ** 2).mean(-1) * MASK).sum()
        for a, b in paired_states()
    )
    settings = {"kind": "states", "normalisation": "deviation"}
    assert loss_of(settings) == pytest.approx(expected, rel=1e-4)


def test_directions_of_states() -> None:
    """Sanh et al. 2019: 1 - cosine, here of the last layers."""
    a, b = paired_states()[-1]
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    settings = {"kind": "states", "distance": "cosine", "layers": {"subset": "last"}}
    assert loss_of(settings) == pytest.approx(((1 - cosine) * MASK).sum(), rel=1e-5)


@pytest.mark.parametrize("moment", ["mean", "variance"])
def test_moments_of_states(moment: str) -> None:
    """MobileBERT's released code: squared difference of means, absolute one of variances."""
    expected = 0.0
    for a, b in paired_states():
        difference = a.mean(-1) - b.mean(-1) if moment == "mean" else a.var(-1) - b.var(-1)
        expected += ((difference**2 if moment == "mean" else abs(difference)) * MASK).sum()
    assert loss_of({"kind": "moments", "moment": moment}) == pytest.approx(expected, rel=1e-5)


def test_attention_scores() -> None:
    """Jiao et al. 2020, equation 7: mean over heads and positions of unnormalised scores."""
    expected = 0.0
    for student, teacher in zip(STUDENT_SCORES, TEACHER_SCORES, strict=True):
        for sequence, mask in enumerate(MASK):
            real = np.ix_(range(HEADS), mask, mask)
            expected += ((student[sequence] - teacher[sequence])[real] ** 2).mean()
    assert loss_of({"kind": "attention"}) == pytest.approx(expected, rel=1e-5)


def test_attention_weights() -> None:
    """Sun et al. 2020, equation 5: KL(teacher || student), mean over heads and positions."""
    expected = 0.0
    for student, teacher in zip(STUDENT_SCORES, TEACHER_SCORES, strict=True):
        a, b = softmax_of_real(student), softmax_of_real(teacher)
        divergence = np.where(b > 0, b * np.log(np.where(b > 0, b / a.clip(1e-30), 1.0)), 0.0)
        by_query = divergence.sum(-1)
        expected += sum(by_query[i][:, mask].mean() for i, mask in enumerate(MASK))
    settings = {"kind": "attention", "target": "weights"}
    assert loss_of(settings) == pytest.approx(expected, rel=1e-5)


def test_the_embeddings_have_no_attention_to_compare() -> None:
    plain = loss_of({"kind": "attention"})
    for pairs in ("0-1 1-2 2-4", "1-0 1-2 2-4", "0-0 1-2 2-4"):
        assert loss_of({"kind": "attention", "layers": {"pairs": pairs}}) == plain


def test_the_attention_of_fewer_heads_is_compared_with_the_mean() -> None:
    expected = 0.0
    for student, teacher in zip(STUDENT_SCORES[:, :, :2], TEACHER_SCORES, strict=True):
        difference = student.mean(1) - teacher.mean(1)
        expected += sum((difference[i][np.ix_(m, m)] ** 2).mean() for i, m in enumerate(MASK))
    values = {
        n: t[:, :2] if n.endswith(("scores", "weights")) else t
        for n, t in INPUTS.student_values.items()
    }
    loss = term_of({"kind": "attention"})(replace(INPUTS, student_values=values)).item()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_only_pairs_that_the_teacher_attends_to_are_compared() -> None:
    """A causal teacher has no weights on later positions, whatever their scores."""
    expected, causal = 0.0, np.tril(np.ones((LENGTH, LENGTH), np.bool_))
    for student, teacher in zip(STUDENT_SCORES, TEACHER_SCORES, strict=True):
        for sequence, mask in enumerate(MASK):
            allowed = causal & mask[:, None] & mask
            difference = student[sequence] - teacher[sequence]
            expected += (difference[:, allowed] ** 2).mean()
    values = {
        n: t * torch.from_numpy(causal) if n.endswith("weights") else t
        for n, t in INPUTS.teacher_values.items()
    }
    loss = term_of({"kind": "attention"})(replace(INPUTS, teacher_values=values)).item()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_heads_with_fixed_patterns_are_compared_where_their_scores_are_finite() -> None:
    expected, previous = 0.0, np.eye(LENGTH, k=-1, dtype=np.bool_)
    for student, teacher in zip(STUDENT_SCORES, TEACHER_SCORES, strict=True):
        for sequence, mask in enumerate(MASK):
            compared = np.tile(mask[:, None] & mask, (HEADS, 1, 1))
            compared[0] &= previous
            expected += ((student[sequence] - teacher[sequence])[compared] ** 2).mean()

    def with_fixed_head(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        fixed = {name: value.clone() for name, value in values.items()}
        for name in fixed:
            if name.endswith("scores"):
                fixed[name][:, 0, ~torch.from_numpy(previous)] = -torch.inf
        return fixed

    inputs = replace(
        INPUTS,
        student_values=with_fixed_head(INPUTS.student_values),
        teacher_values=with_fixed_head(INPUTS.teacher_values),
    )
    loss = term_of({"kind": "attention"})(inputs).item()
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "unit"),
    [
        ({"kind": "outputs"}, "targets"),
        ({"kind": "states"}, "tokens"),
        ({"kind": "states", "positions": "first"}, "sequences"),
        ({"kind": "moments"}, "tokens"),
        ({"kind": "attention"}, "sequences"),
        ({"kind": "relations", "heads": 4}, "sequences"),
        ({"kind": "vectors"}, "sequences"),
    ],
)
def test_losses_are_means_over_targets_tokens_or_sequences(
    settings: dict[str, object], unit: str
) -> None:
    assert term_of(settings).count(BatchCounts(2, 10, 5)) == {
        "sequences": 2, "tokens": 10, "targets": 5,
    }[unit]  # fmt: skip


@pytest.mark.parametrize(("layer", "block"), [(None, 3), (3, 2), (4, 3)])
def test_relations_are_those_of_the_last_layer_or_a_given_one(
    layer: int | None, block: int
) -> None:
    term = term_of({"kind": "relations", "heads": 4, "layer": layer})
    parts = ("query", "key", "value")
    assert term.student_taps == [f"blocks.1.attention.{part}" for part in parts]
    assert term.teacher_taps == [f"blocks.{block}.attention.{part}" for part in parts]


def test_impossible_relations_are_refused() -> None:
    with pytest.raises(UserError, match="the teacher has 4 layers, and no layer 5"):
        term_of({"kind": "relations", "heads": 4, "layer": 5})
    with pytest.raises(UserError, match="width 32 cannot be split into 5 heads"):
        term_of({"kind": "relations", "heads": 5})


def test_terms_of_a_kind_are_numbered_and_weighted_over_the_training() -> None:
    falling = {"kind": "linear", "from": 2, "to": 0}
    settings = [{"kind": "states"}, {"kind": "outputs"}, {"kind": "states", "weight": falling}]
    settings.append({"kind": "states", "weight": 3})
    encoder = small("bert").encoder
    configs = [DistillationTermConfig.parse(term) for term in settings]
    terms = DistillationTerms(configs, encoder, encoder)
    weights = {"states": 1.0, "outputs": 1.0, "states 2": 1.5, "states 3": 3.0}
    assert terms.weights(0.25) == weights
    losses = terms.losses(INPUTS, BatchCounts(2, 10, 5))
    counts = {"states": 10, "outputs": 5, "states 2": 10, "states 3": 10}
    assert {name: loss.count for name, loss in losses.items()} == counts
    assert terms.counts(BatchCounts(2, 10, 5)) == counts
    assert losses["states 2"].sum == losses["states 3"].sum != losses["outputs"].sum
    assert [float(loss.num_correct) for loss in losses.values()] == [0.0] * 4
    assert terms.compares_outputs
    assert not DistillationTerms(configs[:1], encoder, encoder).compares_outputs


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "attention"},
        {"kind": "attention", "target": "weights"},
        {"kind": "relations", "heads": 4},
        {"kind": "states"},
        {"kind": "moments"},
    ],
)
def test_filler_sequences_add_nothing(settings: Mapping[str, object]) -> None:
    """A batch is filled with sequences of padding, whose attention is all 0."""
    filled = {
        side: {
            name: torch.cat((tensor, torch.zeros_like(tensor[:1])))
            for name, tensor in getattr(INPUTS, side).items()
        }
        for side in ("student_values", "teacher_values")
    }
    mask = torch.cat((INPUTS.attention_mask, torch.zeros(1, LENGTH, dtype=torch.bool)))
    inputs = replace(INPUTS, **filled, attention_mask=mask)
    assert term_of(settings)(inputs).item() == pytest.approx(loss_of(settings), rel=1e-6)


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_relations(heads: int) -> None:
    """Wang et al. 2021, equations 5 to 7: scaled products of queries, keys and values."""
    expected = 0.0
    for student, teacher in zip(STUDENT_PARTS, TEACHER_PARTS, strict=True):
        a, b = (
            softmax_of_real(x @ x.swapaxes(-1, -2) / np.sqrt(HEADS * HEAD_WIDTH / heads))
            for x in (split_heads(student, heads), split_heads(teacher, heads))
        )
        divergence = (b * np.log(np.where(b > 0, b, 1) / np.where(a > 0, a, 1))).sum(-1)
        expected += sum(divergence[i][:, mask].mean() for i, mask in enumerate(MASK))
    assert loss_of({"kind": "relations", "heads": heads}) == pytest.approx(expected, rel=1e-5)


def split_heads(vectors: NDArray[np.float64], heads: int) -> NDArray[np.float64]:
    """Return vectors (B, heads, L, d) of the concatenated attention heads (B, H, L, d')."""
    joined = np.concatenate([vectors[:, head] for head in range(HEADS)], axis=-1)
    return np.stack(np.split(joined, heads, axis=-1), axis=1)


@pytest.mark.parametrize(
    ("order", "fraction", "layers"),
    [
        ("joint", 0.0, [0, 1]),
        ("cumulative", 0.0, [0]),
        ("cumulative", 0.5, [0, 1]),
        ("sequential", 0.49, [0]),
        ("sequential", 0.5, [1]),
        ("sequential", 1.0, [1]),
    ],
)
def test_pairs_of_layers_are_trained_in_order(order: str, fraction: float, layers) -> None:
    """Aguilar et al. 2020, section 3.2: progressive and stacked distillation."""
    terms = [(((a - b) ** 2).mean(-1) * MASK).sum() for a, b in paired_states()]
    loss = term_of({"kind": "states", "order": order})(replace(INPUTS, fraction=fraction))
    assert loss.item() == pytest.approx(sum(terms[layer] for layer in layers), rel=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalise", [True, False])
def test_regression_on_text_vectors(pooling: str, normalise: bool) -> None:
    """Vujanic and Rueckstiess 2025: the squared length of the difference of pooled vectors."""

    def vectors(states: NDArray[np.float64]) -> NDArray[np.float64]:
        means = (states * MASK[..., None]).sum(1) / MASK.sum(1, keepdims=True)
        pooled = means if pooling == "mean" else states[:, 0]
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True) if normalise else pooled

    inputs = replace(
        INPUTS,
        student_values=tensors({"output": STUDENT_STATES[-1]}),
        teacher_values=tensors({"output": TEACHER_STATES[-1]}),
    )
    expected = ((vectors(STUDENT_STATES[-1]) - vectors(TEACHER_STATES[-1])) ** 2).sum()
    term = term_of({"kind": "vectors", "pooling": pooling, "normalise": normalise})
    assert term(inputs).item() == pytest.approx(expected, rel=1e-5)
    # A sequence without a real token is a filler.
    fillers = torch.ones(1, LENGTH, WIDTH)
    filled = replace(
        inputs,
        student_values={"output": torch.cat((inputs.student_values["output"], fillers))},
        teacher_values={"output": torch.cat((inputs.teacher_values["output"], -fillers))},
        attention_mask=torch.cat((inputs.attention_mask, torch.zeros(1, LENGTH).bool())),
    )
    assert term(filled).item() == pytest.approx(expected, rel=1e-5)


def test_projected_vectors_are_compared() -> None:
    term = term_of({"kind": "vectors", "normalise": False})
    narrow = STUDENT_STATES[-1][..., :16]
    means = [
        (states * MASK[..., None]).sum(1) / MASK.sum(1, keepdims=True)
        for states in (narrow, TEACHER_STATES[-1])
    ]
    projections = [VectorProjectionConfig(width=24).build(w) for w in (16, WIDTH)]
    vectors = [
        mean @ p.linear.weight.detach().double().numpy().T + p.linear.bias.detach().numpy()
        for mean, p in zip(means, projections, strict=True)
    ]
    expected = ((vectors[0] - vectors[1]) ** 2).sum()
    inputs = replace(
        INPUTS,
        student_values=tensors({"output": narrow}),
        teacher_values=tensors({"output": TEACHER_STATES[-1]}),
        student_projection=projections[0],
        teacher_projection=projections[1],
    )
    assert term(inputs).item() == pytest.approx(expected, rel=1e-4)
