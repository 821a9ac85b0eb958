"""LSH attention against its equations, computed token by token."""

import pytest
import torch
from torch import Tensor

from bertwright.modules.attention.lsh_attention import (
    HASH_DIRECTIONS_STREAM,
    LSHAttention,
    LSHAttentionConfig,
)
from bertwright.modules.attention.mask import AttentionMask
from bertwright.modules.attention.positions import NoPositionsConfig
from bertwright.modules.context import AttentionContext, BlockContext
from bertwright.modules.dropout_rng import DropoutRng, gaussian
from bertwright.modules.norms import LayerNormConfig

WIDTH, LENGTH, HEADS = 16, 22, 2


def build_mixer(**settings: int) -> LSHAttention:
    torch.manual_seed(0)
    config = LSHAttentionConfig(heads=HEADS, head_width=6, **settings)
    mixer = config.build(WIDTH, NoPositionsConfig(), LayerNormConfig()).double()
    assert isinstance(mixer, LSHAttention)
    return mixer


def random_tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def context_of(
    causal: bool, is_real: Tensor | None = None, dropout_rng: DropoutRng | None = None
) -> BlockContext:
    mask = AttentionMask("mask", pattern="causal" if causal else "all", is_real=is_real)
    return BlockContext(AttentionContext(mask), dropout_rng)


def query_keys_and_values(mixer: LSHAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    query_key, value = mixer.projection(x).view(*x.shape[:2], 2, HEADS, 6).unbind(2)
    return query_key.transpose(1, 2), value.transpose(1, 2)


def attend_by_hand(
    mixer: LSHAttention,
    query_key: Tensor,
    value: Tensor,
    causal: bool,
    dropout_rng: DropoutRng | None,
) -> Tensor:
    """Compute one sequence and head at a time: query_key and value (B, H, n, 6) of real tokens."""
    config = mixer.config
    shape = (HEADS, config.rounds, 6, config.buckets // 2)
    directions = gaussian(shape, dropout_rng, config.seed, HASH_DIRECTIONS_STREAM, query_key)
    context = torch.zeros_like(value)
    for sequence in range(len(query_key)):
        for head in range(HEADS):
            contexts, normalisers = [], []
            for number in range(config.rounds):
                projected = query_key[sequence, head] @ directions[head, number]
                bucket = torch.cat((projected, -projected), dim=-1).argmax(-1).tolist()
                rank = [bucket[:p].count(b) for p, b in enumerate(bucket)]
                states, sums = [], []
                for i, query in enumerate(query_key[sequence, head]):
                    allowed = [
                        j
                        for j in range(len(bucket))
                        if bucket[j] == bucket[i]
                        and abs(rank[i] - rank[j]) <= config.chunk
                        and not (causal and j > i)
                    ]
                    keys = torch.stack(
                        [
                            query_key[sequence, head, j] / query_key[sequence, head, j].norm()
                            for j in allowed
                        ]
                    )
                    scores = keys @ query
                    scores = torch.where(torch.tensor(allowed) == i, -1e5, scores)
                    sums.append(torch.logsumexp(scores, 0))
                    states.append(torch.softmax(scores, 0) @ value[sequence, head, allowed])
                contexts.append(torch.stack(states))
                normalisers.append(torch.stack(sums))
            round_weights = torch.softmax(torch.stack(normalisers), 0)
            context[sequence, head] = (round_weights[..., None] * torch.stack(contexts)).sum(0)
    return context


# The first two sort; in the last, the chunks cover the whole sequence.
SETTINGS = [{"rounds": 1, "chunk": 4}, {"rounds": 3, "chunk": 3}, {"rounds": 3, "chunk": 5}]


@pytest.mark.parametrize("dropout_rng", [None, DropoutRng.for_step(0, 4)], ids=["use", "training"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
def test_context_follows_the_equations(settings, causal, dropout_rng) -> None:
    mixer = build_mixer(buckets=4, **settings)
    x = random_tensor(2, LENGTH, WIDTH)
    expected = attend_by_hand(mixer, *query_keys_and_values(mixer, x), causal, dropout_rng)
    expected = mixer.output(expected.transpose(1, 2).reshape(2, LENGTH, -1))
    torch.testing.assert_close(
        mixer(x, context_of(causal, dropout_rng=dropout_rng)), expected, atol=1e-9, rtol=1e-9
    )


@pytest.mark.parametrize("causal", [True, False])
def test_one_bucket_is_attention_with_shared_query_and_key(causal) -> None:
    mixer = build_mixer(buckets=1, chunk=LENGTH, rounds=2)
    x = random_tensor(2, LENGTH, WIDTH)
    query_key, value = query_keys_and_values(mixer, x)
    scores = query_key @ torch.nn.functional.normalize(query_key, dim=-1).transpose(-1, -2)
    scores = scores.masked_fill(torch.eye(LENGTH, dtype=torch.bool), -1e5)
    if causal:
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    context = torch.softmax(scores, -1) @ value
    expected = mixer.output(context.transpose(1, 2).reshape(2, LENGTH, -1))
    torch.testing.assert_close(mixer(x, context_of(causal)), expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("settings", SETTINGS)
def test_padding_changes_nothing(settings) -> None:
    mixer = build_mixer(buckets=4, **settings)
    x = random_tensor(2, LENGTH, WIDTH)
    is_real = torch.ones(2, LENGTH, dtype=torch.bool)
    is_real[1, 13:] = False
    padded = mixer(x, context_of(True, is_real))
    torch.testing.assert_close(padded[0], mixer(x[:1], context_of(True))[0])
    torch.testing.assert_close(padded[1, :13], mixer(x[1:, :13], context_of(True))[0])
    assert padded.isfinite().all()


@pytest.mark.parametrize("settings", SETTINGS)
def test_later_tokens_change_nothing(settings) -> None:
    mixer = build_mixer(buckets=4, **settings)
    x = random_tensor(1, LENGTH, WIDTH)
    whole = mixer(x, context_of(True))
    for position in range(1, LENGTH):
        changed = torch.cat(
            (x[:, :position], 3 * random_tensor(2, LENGTH, WIDTH)[1:, position:]), dim=1
        )
        torch.testing.assert_close(
            mixer(changed, context_of(True))[:, :position], whole[:, :position]
        )


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_gradient_from_later_tokens(settings) -> None:
    mixer = build_mixer(buckets=4, **settings)
    x = random_tensor(1, LENGTH, WIDTH).requires_grad_()
    states = mixer(x, context_of(True))[0]
    for position in range(0, LENGTH, 3):
        (gradient,) = torch.autograd.grad(states[position].square().sum(), x, retain_graph=True)
        assert not gradient[0, position + 1 :].any()


def test_more_rounds_approximate_full_attention_better() -> None:
    x = random_tensor(2, 64, WIDTH)
    whole = build_mixer(buckets=1, chunk=64)
    errors = []
    for rounds in (1, 4, 16):
        mixer = build_mixer(buckets=4, chunk=32, rounds=rounds)
        mixer.load_state_dict(whole.state_dict())
        errors.append(
            float((mixer(x, context_of(False)) - whole(x, context_of(False))).detach().norm())
        )
    assert errors[0] > errors[1] > errors[2]


def test_directions_are_normal_and_depend_on_the_step() -> None:
    shape, like = (50, 40), torch.zeros(1, dtype=torch.float64)
    directions = gaussian(shape, DropoutRng.for_step(0, 1), 0, 8, like)
    assert torch.equal(directions, gaussian(shape, DropoutRng.for_step(0, 1), 0, 8, like))
    assert not torch.equal(directions, gaussian(shape, DropoutRng.for_step(0, 2), 0, 8, like))
    assert not torch.equal(
        directions, gaussian(shape, DropoutRng.for_step(0, 1).for_block(1), 0, 8, like)
    )
    assert abs(float(directions.mean())) < 0.06
    assert float(directions.std()) == pytest.approx(1, abs=0.05)
    assert float((directions.abs() < 1).double().mean()) == pytest.approx(0.6827, abs=0.03)
