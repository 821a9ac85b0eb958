"""Attention as a picture: what is planted is found, whatever stands beside it in a batch."""

import math

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attention.clusters import chance_of_layers
from bertwright.analysis.attention.patterns import PATTERNS, AttentionPatterns
from bertwright.analysis.attention.rollout import rollout
from bertwright.analysis.attention.shares import TARGETS
from bertwright.analysis.planted.attention import POINTERS, pointed, pointing
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def case(system: str = "bert", texts: tuple[str, ...] = SENTENCES) -> Case:
    subject = small_subject(system)
    return Case(subject, read_texts(subject, [Example(text) for text in texts]))


def values(found, metric: str) -> np.ndarray:
    of = {(f.layer, f.head): f.value for f in found.findings if f.metric == metric}
    return np.array([[of[layer, head] for head in range(4)] for layer in range(2)])


HEADS = {0: ("opening", "end", "self", "even"), 1: ("previous", "next", "even", "opening")}


def test_heads_look_where_they_are_told() -> None:
    own = case()
    with pointing(own.subject, HEADS):
        found = Analysis.choose("attention-shares").run(own)
    lengths = np.array([len(text) for text in own.texts])
    shares = {target: values(found, target) for target in TARGETS}
    assert shares["opening"][0, 0] == pytest.approx(1)
    assert shares["separator"][0, 1] == pytest.approx(1)
    assert shares["self"][0, 2] == pytest.approx(1)
    # The first place has nothing before it, and looks at itself.
    assert shares["previous"][1, 0] == pytest.approx(np.mean((lengths - 1) / lengths))
    assert shares["next"][1, 1] == pytest.approx(np.mean((lengths - 1) / lengths))
    assert shares["opening"][0, 3] == pytest.approx(np.mean(1 / lengths))


def test_an_even_head_is_at_its_baseline_in_every_family() -> None:
    for system in ("bert", "gpt-2"):
        own = case(system)
        with pointing(own.subject, {0: ("even",) * 4, 1: ("even",) * 4}):
            for kind in ("attention-shares", "attention-entropy"):
                found = [f for f in Analysis.choose(kind).run(own).findings if f.baseline]
                assert found
                for finding in found:
                    assert finding.value == pytest.approx(finding.baseline.value, abs=1e-6)


def test_entropy_is_that_of_the_row() -> None:
    own = case()
    with pointing(own.subject, HEADS):
        found = values(Analysis.choose("attention-entropy").run(own), "entropy")
    lengths = np.array([len(text) for text in own.texts])
    assert found[0, 3] == pytest.approx(np.mean(np.log(lengths)), rel=1e-6)
    assert abs(found[0, 2]) < 0.01
    assert (found <= math.log(lengths.max()) + 1e-6).all()


def test_patterns_that_are_planted_are_told_apart() -> None:
    own = case()
    with pointing(own.subject, HEADS):
        found = Analysis.choose("attention-patterns").run(own).arrays["shares"]
    told = [[PATTERNS[n] for n in row] for row in found.argmax(-1)]
    assert told == [
        ["vertical", "vertical", "diagonal", "heterogeneous"],
        ["diagonal", "diagonal", "heterogeneous", "vertical"],
    ]
    assert found.sum(-1) == pytest.approx(1)


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
    seen = torch.zeros(1, len(POINTERS), 5, 5)
    seen[..., :4] = 0.25
    found = pointed(seen, POINTERS)
    assert torch.equal(found[..., :4, :].sum(-1), torch.ones(1, len(POINTERS), 4))
    assert not found[..., 4].any()


def test_rollout_is_the_product_of_what_layers_mix() -> None:
    turned = torch.roll(torch.eye(5), 1, 0)[None]
    for number, found in enumerate(rollout([turned] * 3), start=1):
        expected = torch.linalg.matrix_power((turned[0] + torch.eye(5)) / 2, number)
        torch.testing.assert_close(found[0], expected)
    own = case()
    with pointing(own.subject, {0: ("self",) * 4, 1: ("opening",) * 4}):
        shares = Analysis.choose("attention-rollout").run(own).arrays["shares"]
    lengths = np.array([len(text) for text in own.texts])
    assert shares[0] == pytest.approx([1, np.mean(1 / lengths), np.mean(1 / lengths)])
    assert shares[1, 1] == pytest.approx(0.5 + np.mean(0.5 / lengths))


def test_heads_that_look_alike_are_near() -> None:
    own = case()
    alike = {0: ("opening", "opening", "even", "self"), 1: ("opening", "even", "self", "end")}
    with pointing(own.subject, alike):
        found = Analysis.choose({"kind": "head-clusters", "most": 3}).run(own)
    distances = found.arrays["distances"]
    assert distances == pytest.approx(distances.T)
    assert np.diag(distances) == pytest.approx(0)
    assert distances.max() <= np.log(2) + 1e-9
    for first, second in ((0, 1), (0, 4), (2, 5), (3, 6)):
        assert distances[first, second] == pytest.approx(0, abs=1e-9)
    # A place that looks at itself alone, and one that looks at the first alone, share nothing, but
    # for the first place.
    lengths = [len(text) for text in own.texts[:3]]
    expected = np.log(2) * (sum(lengths) - len(lengths)) / sum(lengths)
    assert distances[0, 3] == pytest.approx(expected)


def test_layers_of_like_heads_are_not_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.analysis.attention.clusters.PERMUTATIONS", 200)
    generator, layer = np.random.default_rng(0), np.repeat(np.arange(4), 4)
    place = generator.normal(size=16) / 10
    apart, mixed = (np.abs(x[:, None] - x) for x in (place + layer, place))
    assert chance_of_layers(apart, layer, 0) < 0.01
    deals = [generator.permutation(16) for _ in range(100)]
    chances = [chance_of_layers(mixed[deal][:, deal], layer, 0) for deal in deals]
    assert 0.02 <= np.mean(np.array(chances) < 0.1) <= 0.2
