"""Attention by hashing against its equations, written out place by place."""

import pytest
import torch
from torch import Tensor

from bertwright.encoder.kernels.noise import Noise, gaussian
from bertwright.encoder.mixers import Hashing
from bertwright.encoder.mixers.hashing import HASHING_SITE, HashingAttention
from bertwright.encoder.norms import LayerNormChoice
from bertwright.encoder.positions import NoPositions
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.visibility import View

WIDTH, LENGTH, HEADS = 16, 22, 2


def built(**settings: int) -> HashingAttention:
    torch.manual_seed(0)
    choice = Hashing(heads=HEADS, head_width=6, **settings)
    mixer = choice.build(WIDTH, NoPositions(), LayerNormChoice()).double()
    assert isinstance(mixer, HashingAttention)
    return mixer


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def around(causal: bool, real: Tensor | None = None) -> Surroundings:
    return Surroundings(View("mask", order="causal" if causal else "all", real=real))


def parts(mixer: HashingAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    shared, value = mixer.projection(x).view(*x.shape[:2], 2, HEADS, 6).unbind(2)
    return shared.transpose(1, 2), value.transpose(1, 2)


def written_out(
    mixer: HashingAttention, shared: Tensor, value: Tensor, causal: bool, noise: Noise | None
) -> Tensor:
    """One row and head at a time: shared and value (n, 6) of all real places."""
    choice = mixer.choice
    shape = (HEADS, choice.rounds, 6, choice.buckets // 2)
    directions = gaussian(shape, noise, choice.seed, HASHING_SITE, shared)
    context = torch.zeros_like(value)
    for row in range(len(shared)):
        for head in range(HEADS):
            found, totals = [], []
            for number in range(choice.rounds):
                turned = shared[row, head] @ directions[head, number]
                bucket = torch.cat((turned, -turned), dim=-1).argmax(-1).tolist()
                rank = [bucket[:p].count(b) for p, b in enumerate(bucket)]
                states, sums = [], []
                for i, query in enumerate(shared[row, head]):
                    seen = [
                        j
                        for j in range(len(bucket))
                        if bucket[j] == bucket[i]
                        and abs(rank[i] - rank[j]) <= choice.chunk
                        and not (causal and j > i)
                    ]
                    keys = torch.stack(
                        [shared[row, head, j] / shared[row, head, j].norm() for j in seen]
                    )
                    scores = keys @ query
                    scores = torch.where(torch.tensor(seen) == i, -1e5, scores)
                    sums.append(torch.logsumexp(scores, 0))
                    states.append(torch.softmax(scores, 0) @ value[row, head, seen])
                found.append(torch.stack(states))
                totals.append(torch.stack(sums))
            share = torch.softmax(torch.stack(totals), 0)
            context[row, head] = (share[..., None] * torch.stack(found)).sum(0)
    return context


# The second sorts, the last does not: all places are no more than those of its chunks.
SETTINGS = [{"rounds": 1, "chunk": 4}, {"rounds": 3, "chunk": 3}, {"rounds": 3, "chunk": 5}]


@pytest.mark.parametrize("noise", [None, Noise.of(0, 4)], ids=["use", "training"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
def test_it_computes_its_equations(settings, causal, noise) -> None:
    mixer = built(buckets=4, **settings)
    x = drawn(2, LENGTH, WIDTH)
    expected = written_out(mixer, *parts(mixer, x), causal, noise)
    expected = mixer.output(expected.transpose(1, 2).reshape(2, LENGTH, -1))
    torch.testing.assert_close(mixer(x, around(causal), noise), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
def test_one_bucket_is_attention_with_shared_queries_and_keys(causal) -> None:
    mixer = built(buckets=1, chunk=LENGTH, rounds=2)
    x = drawn(2, LENGTH, WIDTH)
    shared, value = parts(mixer, x)
    scores = shared @ torch.nn.functional.normalize(shared, dim=-1).transpose(-1, -2)
    scores = scores.masked_fill(torch.eye(LENGTH, dtype=torch.bool), -1e5)
    if causal:
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    context = torch.softmax(scores, -1) @ value
    expected = mixer.output(context.transpose(1, 2).reshape(2, LENGTH, -1))
    torch.testing.assert_close(mixer(x, around(causal)), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("settings", SETTINGS)
def test_padding_changes_nothing(settings) -> None:
    mixer = built(buckets=4, **settings)
    x = drawn(2, LENGTH, WIDTH)
    real = torch.ones(2, LENGTH, dtype=torch.bool)
    real[1, 13:] = False
    padded = mixer(x, around(True, real))
    torch.testing.assert_close(padded[0], mixer(x[:1], around(True))[0])
    torch.testing.assert_close(padded[1, :13], mixer(x[1:, :13], around(True))[0])
    assert padded.isfinite().all()


@pytest.mark.parametrize("settings", SETTINGS)
def test_what_stands_later_changes_nothing(settings) -> None:
    mixer = built(buckets=4, **settings)
    x = drawn(1, LENGTH, WIDTH)
    whole = mixer(x, around(True))
    for place in range(1, LENGTH):
        changed = torch.cat((x[:, :place], 3 * drawn(2, LENGTH, WIDTH)[1:, place:]), dim=1)
        torch.testing.assert_close(mixer(changed, around(True))[:, :place], whole[:, :place])


@pytest.mark.parametrize("settings", SETTINGS)
def test_nothing_comes_from_later_places(settings) -> None:
    mixer = built(buckets=4, **settings)
    x = drawn(1, LENGTH, WIDTH).requires_grad_()
    states = mixer(x, around(True))[0]
    for place in range(0, LENGTH, 3):
        (gradient,) = torch.autograd.grad(states[place].square().sum(), x, retain_graph=True)
        assert not gradient[0, place + 1 :].any()


def test_more_rounds_come_closer_to_seeing_all() -> None:
    x = drawn(2, 64, WIDTH)
    whole = built(buckets=1, chunk=64)
    errors = []
    for rounds in (1, 4, 16):
        mixer = built(buckets=4, chunk=32, rounds=rounds)
        mixer.load_state_dict(whole.state_dict())
        errors.append(float((mixer(x, around(False)) - whole(x, around(False))).detach().norm()))
    assert errors[0] > errors[1] > errors[2]


def test_directions_are_those_of_the_step_and_normal() -> None:
    shape, like = (50, 40), torch.zeros(1, dtype=torch.float64)
    first = gaussian(shape, Noise.of(0, 1), 0, 8, like)
    assert torch.equal(first, gaussian(shape, Noise.of(0, 1), 0, 8, like))
    assert not torch.equal(first, gaussian(shape, Noise.of(0, 2), 0, 8, like))
    assert not torch.equal(first, gaussian(shape, Noise.of(0, 1).within(1), 0, 8, like))
    assert abs(float(first.mean())) < 0.06
    assert float(first.std()) == pytest.approx(1, abs=0.05)
    assert float((first.abs() < 1).double().mean()) == pytest.approx(0.6827, abs=0.03)
