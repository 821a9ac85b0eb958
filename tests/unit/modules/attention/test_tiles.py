"""Attention masks in tiles: equal to the dense definition, without leaks, and less work."""

from collections.abc import Generator
from dataclasses import replace
from itertools import product

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.kernels.inputs import AttentionInputs
from bertwright.modules.attention.kernels.kernels import attend
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    CausalVisibility,
    DilatedWindowVisibility,
    GlobalVisibility,
    RandomBlocksVisibility,
    SameDocumentVisibility,
    ShortTextVisibility,
    Visibility,
    WindowVisibility,
    build_attention_mask,
    compute_tiles,
    compute_tiles_by_head,
    tiles,
)
from bertwright.modules.attention.positions import NoPositionsConfig
from bertwright.modules.context import AttentionContext, BlockContext
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.norms import LayerNormConfig
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import VOCABULARY, toy

LENGTH = 90
BIGBIRD = (
    WindowVisibility(size=1, block=4)
    | GlobalVisibility(first=1, last=1, block=4)
    | RandomBlocksVisibility(block=4)
)
DILATED = DilatedWindowVisibility(sizes=(5,), dilations=(3,), dilated_heads=2)
HEADS = 3
RULES: dict[str, Visibility] = {
    "all": BidirectionalVisibility(),
    "causal": CausalVisibility(),
    "window": WindowVisibility(size=5),
    "causal-window": CausalVisibility() & WindowVisibility(size=9),
    "documents": SameDocumentVisibility(),
    "longformer": WindowVisibility(size=5) | GlobalVisibility(),
    "some-positions": WindowVisibility(size=5) | GlobalVisibility(first=0, positions=(3, 50)),
    "second-segment": WindowVisibility(size=5) | GlobalVisibility(segment=1),
    "bigbird": BIGBIRD | ShortTextVisibility(length=20),
    "bigbird-in-documents": BIGBIRD & SameDocumentVisibility(),
    "longformer-in-documents": (WindowVisibility(size=5) | GlobalVisibility())
    & SameDocumentVisibility(),
    "dilated": DILATED,
    "dilated-in-all-heads": DilatedWindowVisibility(sizes=(4,), dilations=(2,)),
    "causal-dilated": CausalVisibility() & DILATED,
    "dilated-in-documents": (DILATED | GlobalVisibility(last=1))
    & SameDocumentVisibility()
    & CausalVisibility(),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


SEGMENT = (torch.arange(LENGTH)[None] % 50 > 40).long()


def plain() -> TokenInfo:
    return TokenInfo(torch.arange(LENGTH)[None], segment_ids=SEGMENT)


def padded() -> TokenInfo:
    document_ids = torch.zeros(2, LENGTH, dtype=torch.int64)
    document_ids[0, 60:], document_ids[1, 17:] = -1, -1
    return TokenInfo(torch.arange(LENGTH)[None], segment_ids=SEGMENT, document_ids=document_ids)


def packed() -> TokenInfo:
    lengths = (11, 40, 30), (70, 20)
    document_ids = torch.full((2, LENGTH), -1)
    position_ids = torch.zeros(2, LENGTH, dtype=torch.int64)
    for sequence, document_lengths in enumerate(lengths):
        starts = [sum(document_lengths[:n]) for n in range(len(document_lengths))]
        for number, (start, length) in enumerate(zip(starts, document_lengths, strict=True)):
            document_ids[sequence, start : start + length] = number
            position_ids[sequence, start : start + length] = torch.arange(length)
    return TokenInfo(torch.arange(LENGTH)[None], position_ids, SEGMENT, document_ids)


BATCHES = {"plain": plain, "padded": padded, "packed": packed}
every_batch = pytest.mark.parametrize("make_batch", BATCHES.values(), ids=list(BATCHES))


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(tiles, "TILE_SIZE", 8)
    tiles._tiles_by_rule.cache_clear()
    yield
    tiles._tiles_by_rule.cache_clear()


def dense_and_tiled_inputs(
    rule: Visibility, token_info: TokenInfo, dtype=torch.float64, **settings
) -> list[AttentionInputs]:
    """Return the same call with a dense mask and with one in tiles."""
    generator = torch.Generator().manual_seed(1)
    inputs: list[AttentionInputs] = []
    query_key_value = torch.randn(3, 2, HEADS, LENGTH, 8, generator=generator, dtype=dtype)
    settings = {"dropout_rate": 0.0, "dropout_rng": None, "hooks": None, **settings}
    for tiling in ("never", "always"):
        tensors = [tensor.clone().requires_grad_() for tensor in query_key_value]
        mask = build_attention_mask(rule, token_info, tiling=tiling, num_heads=HEADS)
        inputs.append(AttentionInputs(*tensors, mask, **settings))
    return inputs


def assert_equal(dense: AttentionInputs, tiled: AttentionInputs, atol: float) -> None:
    weight = torch.randn(2, HEADS, LENGTH, 8, generator=torch.Generator().manual_seed(2))
    results: list[list[torch.Tensor]] = []
    for call, kernel in ((dense, "explicit"), (tiled, "tiled")):
        context = attend(call, kernel)
        (context * weight).sum().backward()
        gradients = [tensor.grad for tensor in (call.query, call.key, call.value)]
        results.append([context.detach(), *gradients])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=atol)


@every_batch
@every_rule
def test_tiles_equal_the_dense_mask(rule, make_batch):
    assert_equal(*dense_and_tiled_inputs(rule, make_batch()), atol=1e-9)


@every_batch
def test_the_same_weights_are_dropped(make_batch):
    settings = {"dropout_rate": 0.2, "dropout_rng": DropoutRng.for_step(0, 3, first_sequence=5)}
    assert_equal(
        *dense_and_tiled_inputs(RULES["bigbird-in-documents"], make_batch(), **settings), atol=1e-9
    )
    assert_equal(
        *dense_and_tiled_inputs(RULES["longformer"], make_batch(), torch.float32, **settings),
        atol=1e-5,
    )
    assert_equal(
        *dense_and_tiled_inputs(RULES["dilated-in-documents"], make_batch(), **settings), atol=1e-9
    )


@every_batch
@every_rule
def test_masked_tokens_have_no_influence(rule, make_batch):
    token_info = make_batch()
    _, call = dense_and_tiled_inputs(rule, token_info)
    context = attend(call, "tiled")
    allowed = torch.stack(
        [
            rule.at_head(head)
            .visible(token_info.as_queries(), token_info.as_keys())
            .expand(2, -1, -1)
            for head in range(HEADS)
        ],
        dim=1,
    )
    if token_info.document_ids is not None:
        allowed = allowed & (token_info.document_ids >= 0)[:, None, None]
    for position in range(0, LENGTH, 13):
        (gradient,) = torch.autograd.grad(
            context[:, :, position].square().sum(), call.value, retain_graph=True
        )
        assert torch.equal(gradient.abs().sum(3) > 0, allowed[:, :, position])


def test_fully_masked_tokens_get_zeros():
    _, call = dense_and_tiled_inputs(SameDocumentVisibility(), padded())
    context = attend(call, "tiled")
    assert context[0, :, 60:].abs().max() == 0
    context.sum().backward()
    assert call.query.grad.isfinite().all()


def test_unsupported_calls_name_other_kernels():
    _, call = dense_and_tiled_inputs(WindowVisibility(size=5), plain())
    with pytest.raises(UserError, match=r"'tiled' does not support a score bias"):
        attend(replace(call, score_bias=torch.zeros(1, 3, LENGTH, LENGTH)), "tiled")
    model = Model.build(toy("longformer", "encoder.mixer.kernel=tiled"), VOCABULARY)
    with (
        model.record("*.weights"),
        pytest.raises(UserError, match=r"hooks on attention scores or weights.*explicit"),
    ):
        model(torch.zeros(1, 24, dtype=torch.int64))
    alibi = toy("bert", "encoder.mixer.kernel=tiled", "encoder.positions={kind: alibi}")
    with pytest.raises(UserError, match=r"a score bias.*explicit or sdpa"):
        Model.build(alibi, VOCABULARY)(torch.zeros(1, 24, dtype=torch.int64))


@pytest.mark.parametrize("name", ["window", "longformer", "bigbird", "dilated-in-all-heads"])
def test_work_is_linear_in_the_length(name):
    pairs = [
        compute_tiles(RULES[name], TokenInfo(torch.arange(length)[None])).num_pairs
        for length in (256, 512, 1024)
    ]
    # One tile of queries attends to everything in a Longformer, two in a BigBird.
    assert pairs[1] / pairs[0] < 2.1
    assert pairs[2] / pairs[1] < 2.1


@pytest.mark.parametrize(
    "other",
    [BidirectionalVisibility(), CausalVisibility(), GlobalVisibility()],
    ids=lambda r: r.kind,
)
def test_dilated_heads_cost_no_more(other):
    token_info = TokenInfo(torch.arange(1024)[None])
    rule = DILATED | other if isinstance(other, GlobalVisibility) else DILATED & other
    dilated, undilated = compute_tiles_by_head(rule, token_info, HEADS)
    assert dilated.head_indices.tolist() == [0, 1]
    assert undilated.head_indices.tolist() == [2]
    # At the border between two remainders a tile contains both.
    assert undilated.num_pairs <= dilated.num_pairs < 1.1 * undilated.num_pairs


def test_tiles_are_used_where_they_are_faster(monkeypatch):
    monkeypatch.setattr(tiles, "MIN_TILED_LENGTH", 64)
    plain_rows = TokenInfo(torch.arange(128)[None])
    assert (
        build_attention_mask(WindowVisibility(size=5), plain_rows, tiling="auto").layout == "tiles"
    )
    assert (
        build_attention_mask(WindowVisibility(size=40), plain_rows, tiling="auto").layout == "mask"
    )
    assert build_attention_mask(WindowVisibility(size=5), plain(), tiling="never").layout == "mask"
    assert (
        build_attention_mask(BidirectionalVisibility(), plain_rows, tiling="auto").layout == "all"
    )
    short = TokenInfo(torch.arange(60)[None])
    assert build_attention_mask(WindowVisibility(size=5), short, tiling="auto").layout == "mask"


@pytest.mark.parametrize("system", ["longformer", "bigbird"])
def test_a_model_computes_the_same_with_tiles(system):
    tokens = torch.randint(5, VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(0))
    token_info = TokenInfo(torch.arange(40)[None], document_ids=padded().document_ids[:, :40])
    dense, tiled = (
        Model.build(toy(system, f"encoder.mixer.kernel={kernel}"), VOCABULARY).double()
        for kernel in ("explicit", "tiled")
    )
    for batch_info in (None, token_info):
        torch.testing.assert_close(
            tiled(tokens, batch_info), dense(tokens, batch_info), atol=1e-9, rtol=1e-9
        )


def test_random_blocks_exclude_neighbours_and_ends():
    token_info = TokenInfo(torch.arange(64)[None]).with_text_lengths()
    blocks = torch.stack(RandomBlocksVisibility(number=3, block=4).random_blocks(token_info), -1)[0]
    assert torch.equal(blocks[::4], blocks[3::4])
    for block, others in enumerate(blocks[::4].tolist()):
        assert len({*others}) == 3
        assert not {*others} & {0, 15, block - 1, block, block + 1}
        assert all(0 < other < 15 for other in others)


def test_random_blocks_depend_on_seed_and_encoder_block():
    token_info = TokenInfo(torch.arange(400)[None]).with_text_lengths()

    def draw(rule: Visibility) -> torch.Tensor:
        return torch.stack(rule.random_blocks(token_info))

    rule = RandomBlocksVisibility(block=4)
    assert torch.equal(draw(rule), draw(RandomBlocksVisibility(block=4).at_block(0)))
    assert not torch.equal(draw(rule), draw(rule.at_block(1)))
    assert not torch.equal(draw(rule), draw(RandomBlocksVisibility(block=4, seed=1)))
    # Heads take turns between the draws; the rule of all heads is their union.
    by_head = RandomBlocksVisibility(block=4, draws=2)
    first, second, third = (draw(by_head.at_head(head)) for head in range(3))
    assert not torch.equal(first, second)
    assert torch.equal(first, third)
    assert torch.equal(draw(by_head), torch.cat((first, second)))
    assert rule.at_head(1) == rule


def test_random_blocks_are_uniform():
    token_info = TokenInfo(torch.arange(3200)[None]).with_text_lengths()
    blocks = torch.stack(
        [
            torch.stack(RandomBlocksVisibility(block=4, layer=n).random_blocks(token_info))
            for n in range(9)
        ]
    )
    counts = torch.bincount(blocks.flatten()[::4])[1:799].float()
    assert counts.mean() == pytest.approx(27, rel=0.02)
    assert counts.std() == pytest.approx(27**0.5, rel=0.15)


def test_few_blocks_leave_nothing_to_draw():
    token_info = TokenInfo(torch.arange(24)[None]).with_text_lengths()
    blocks = torch.stack(RandomBlocksVisibility(number=3, block=4).random_blocks(token_info), -1)[
        0, ::4
    ]
    assert blocks[2].sort().values.tolist() == [-1, -1, 4]


def test_bigbird_by_hand():
    token_info = TokenInfo(torch.arange(16)[None])
    rule = WindowVisibility(size=1, block=2) | GlobalVisibility(first=1, last=1, block=2)
    allowed = rule.visible(token_info.as_queries(), token_info.as_keys())[0, ::2, ::2].int()
    assert allowed.tolist() == [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0, 1],
        [1, 1, 1, 1, 0, 0, 0, 1],
        [1, 0, 1, 1, 1, 0, 0, 1],
        [1, 0, 0, 1, 1, 1, 0, 1],
        [1, 0, 0, 0, 1, 1, 1, 1],
        [1, 0, 0, 0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
    ]


def test_global_blocks_ignore_padding():
    document_ids = torch.zeros(1, 16, dtype=torch.int64)
    document_ids[0, 11:] = -1
    token_info = TokenInfo(torch.arange(16)[None], document_ids=document_ids)
    rule = GlobalVisibility(first=0, last=1, block=4)
    assert rule.global_tokens(token_info.with_text_lengths())[0].nonzero().flatten().tolist() == [
        8,
        9,
        10,
    ]
    assert (
        not ShortTextVisibility(length=10)
        .visible(token_info.as_queries(), token_info.as_keys())
        .any()
    )
    assert (
        ShortTextVisibility(length=11).visible(token_info.as_queries(), token_info.as_keys()).all()
    )


def test_dropout_of_global_weights_is_independent_of_the_batch():
    """Sequences have more or fewer global tokens: one for every text in them."""
    model = Model.build(toy("longformer", "encoder.mixer.dropout=0.5"), VOCABULARY)
    tokens = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    document_ids = torch.tensor([[0] * 24, [0] * 8 + [1] * 8 + [2] * 8])
    positions = torch.arange(24).expand(2, -1)

    def states(batch: slice) -> torch.Tensor:
        token_info = TokenInfo(torch.arange(24)[None], positions[batch], None, document_ids[batch])
        return model.encoder(tokens[batch], token_info, dropout_rng=DropoutRng.for_step(0, 3))

    torch.testing.assert_close(states(slice(0, 2))[:1], states(slice(0, 1)))


def test_global_attention_by_hand():
    torch.manual_seed(0)
    config = AttentionConfig(heads=2, global_projections=True)
    mixer = config.build(16, NoPositionsConfig(), LayerNormConfig()).double()
    x = torch.randn(2, 10, 16, dtype=torch.float64)
    document_ids = torch.zeros(2, 10, dtype=torch.int64)
    document_ids[1, 7:] = -1
    token_info = TokenInfo(torch.arange(10)[None], document_ids=document_ids)
    rule = WindowVisibility(size=1) | GlobalVisibility(first=0, positions=(2, 8))
    actual = mixer(
        x,
        BlockContext(
            AttentionContext(build_attention_mask(rule, token_info, with_global_tokens=True))
        ),
    )

    def heads(projection: torch.nn.Linear, part: int) -> torch.Tensor:
        return projection(x).view(2, 10, 3, 2, 8)[:, :, part].transpose(1, 2)

    context = torch.zeros(2, 2, 10, 8, dtype=torch.float64)
    for sequence, head, position in product(range(2), range(2), range(10)):
        real = [k for k in range(10) if document_ids[sequence, k] == 0]
        is_global = position in (2, 8) and position in real
        allowed = real if is_global else [k for k in real if abs(k - position) <= 1 or k in (2, 8)]
        if position not in real:
            continue
        projection = mixer.global_attention.projection if is_global else mixer.projection
        query, key, value = (heads(projection, part)[sequence, head] for part in range(3))
        scores = torch.stack([query[position] @ key[k] for k in allowed]) / 8**0.5
        context[sequence, head, position] = torch.softmax(scores, 0) @ value[allowed]
    expected = mixer.output(context.transpose(1, 2).reshape(2, 10, 16))
    torch.testing.assert_close(actual[0], expected[0], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(actual[1, :7], expected[1, :7], atol=1e-9, rtol=1e-9)


def test_with_copied_projections_and_a_wide_window_it_is_plain_attention():
    recipe = toy("longformer")
    model = Model.build(recipe, VOCABULARY)
    for name, parameter in model.named_parameters():
        if "global_attention" in name:
            other = model.get_parameter(name.replace("global_attention.", ""))
            parameter.data.copy_(other.data)
    tokens = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    actual = model(tokens, visibility=WindowVisibility(size=24) | GlobalVisibility())
    torch.testing.assert_close(
        actual, model(tokens, visibility=BidirectionalVisibility()), atol=1e-5, rtol=1e-5
    )
