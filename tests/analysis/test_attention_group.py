"""Attention as a picture: whatever stands beside a text in a batch."""

from typing import get_args

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.attention.clusters import chance_of_layers
from bertwright.analysis.attention.patterns import PATTERNS, AttentionPatterns
from bertwright.analysis.attention.slopes import slopes
from bertwright.analysis.planted.attention import Pointer, pointed
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.texts import read_texts
from bertwright.encoder.stream import Coordinates
from bertwright.tasks.formats.examples import Example


def case(system: str = "bert", texts: tuple[str, ...] = SENTENCES) -> Case:
    subject = small_subject(system)
    return Case(subject, read_texts(subject, [Example(text) for text in texts]))


def test_a_block_is_found_in_pairs_only() -> None:
    segment = torch.tensor([[0] * 6 + [1] * 6, [0] * 12])
    same = (segment[:, :, None] == segment[:, None, :]).double()
    weights = (same / same.sum(-1, keepdim=True))[:, None]
    even = torch.full((2, 1, 12, 12), 1 / 12).double()
    found = AttentionPatterns().classes(weights, even, torch.full((2,), 12.0), segment)
    assert [PATTERNS[n] for n in found[:, 0]] == ["block", "heterogeneous"]


@pytest.mark.parametrize("kind", ["attention-shares", "attention-entropy", "attention-patterns"])
def test_neighbours_in_a_batch_change_nothing(kind: str) -> None:
    together, alone = case(), [case(texts=(text,)) for text in SENTENCES]
    found = Analysis.choose(kind).run(together)
    each = [Analysis.choose(kind).run(own) for own in alone]
    for number, finding in enumerate(found.findings):
        mean = np.mean([own.findings[number].value for own in each])
        assert finding.value == pytest.approx(mean, rel=1e-9)


def test_pointers_are_distributions_over_what_is_seen() -> None:
    seen = torch.zeros(1, len(get_args(Pointer)), 5, 5)
    seen[..., :4] = 0.25
    found = pointed(seen, get_args(Pointer))
    assert torch.equal(found[..., :4, :].sum(-1), torch.ones(1, len(get_args(Pointer)), 4))
    assert not found[..., 4].any()


def test_layers_of_like_heads_are_not_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.analysis.attention.clusters.PERMUTATIONS", 200)
    generator, layer = np.random.default_rng(0), np.repeat(np.arange(4), 4)
    place = generator.normal(size=16) / 10
    apart, mixed = (np.abs(x[:, None] - x) for x in (place + layer, place))
    assert chance_of_layers(apart, layer, 0) < 0.01
    deals = [generator.permutation(16) for _ in range(100)]
    chances = [chance_of_layers(mixed[deal][:, deal], layer, 0) for deal in deals]
    assert 0.02 <= np.mean(np.array(chances) < 0.1) <= 0.2


@pytest.mark.parametrize("system", ["bert", "gpt", "modernbert"])
def test_slopes_are_of_what_may_be_looked_at(system: str) -> None:
    own = case(system, texts=SENTENCES[:1])
    asking, length = Asking(own.subject, own.texts), len(own.texts[0])
    with own.subject.encoder.record("blocks.1.attention.weights", gradients=True) as values:
        loss = next(asking.batches())[1].sum()
        (weights,) = values.values()
        (slope,) = torch.autograd.grad(loss, [weights])
    seen = own.subject.encoder.seen(1, Coordinates.plain(torch.zeros(1, length)))[0, 0]
    wanted = [slope[0, :, seen[:, column], column].abs().mean(1) for column in (0, length - 1)]
    found = slopes(asking)[0, 1, :, :2]
    np.testing.assert_allclose(found, torch.stack(wanted, 1).numpy(), atol=1e-12)
    if system == "gpt":
        assert not found[:, 1].any(), "nothing is named behind the last place"
