"""Rules laid out in tiles: equal to the dense definition, without a leak, and less work."""

from collections.abc import Generator
from dataclasses import replace
from itertools import product

import pytest
import torch

from bertwright.encoder.kernels.attention import attend
from bertwright.encoder.kernels.call import Call
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers import AttentionChoice
from bertwright.encoder.norms import LayerNormChoice
from bertwright.encoder.positions import NoPositions
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    Global,
    RandomBlocks,
    SameDocument,
    Short,
    Visibility,
    Window,
    Windows,
    laid_out,
    laid_out_by_head,
    tiles,
    view,
)
from bertwright.errors import UserError
from bertwright.model import Model
from recipes_at_toy_size import VOCABULARY, toy

LENGTH = 90
BIGBIRD = Window(size=1, block=4) | Global(first=1, last=1, block=4) | RandomBlocks(block=4)
DILATED = Windows(sizes=(5,), dilations=(3,), dilated_heads=2)
HEADS = 3
RULES: dict[str, Visibility] = {
    "all": Bidirectional(),
    "causal": Causal(),
    "window": Window(size=5),
    "causal-window": Causal() & Window(size=9),
    "documents": SameDocument(),
    "longformer": Window(size=5) | Global(),
    "some-places": Window(size=5) | Global(first=0, positions=(3, 50)),
    "second-text": Window(size=5) | Global(segment=1),
    "bigbird": BIGBIRD | Short(length=20),
    "bigbird-in-documents": BIGBIRD & SameDocument(),
    "longformer-in-documents": (Window(size=5) | Global()) & SameDocument(),
    "dilated": DILATED,
    "dilated-in-all-heads": Windows(sizes=(4,), dilations=(2,)),
    "causal-dilated": Causal() & DILATED,
    "dilated-in-documents": (DILATED | Global(last=1)) & SameDocument() & Causal(),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


SEGMENT = (torch.arange(LENGTH)[None] % 50 > 40).long()


def plain() -> Coordinates:
    return Coordinates(torch.arange(LENGTH)[None], segment=SEGMENT)


def padded() -> Coordinates:
    document = torch.zeros(2, LENGTH, dtype=torch.int64)
    document[0, 60:], document[1, 17:] = -1, -1
    return Coordinates(torch.arange(LENGTH)[None], segment=SEGMENT, document=document)


def packed() -> Coordinates:
    lengths = (11, 40, 30), (70, 20)
    document = torch.full((2, LENGTH), -1)
    position = torch.zeros(2, LENGTH, dtype=torch.int64)
    for row, own in enumerate(lengths):
        starts = [sum(own[:n]) for n in range(len(own))]
        for number, (start, length) in enumerate(zip(starts, own, strict=True)):
            document[row, start : start + length] = number
            position[row, start : start + length] = torch.arange(length)
    return Coordinates(torch.arange(LENGTH)[None], position, SEGMENT, document)


ROWS = {"plain": plain, "padded": padded, "packed": packed}
every_kind_of_rows = pytest.mark.parametrize("rows", ROWS.values(), ids=list(ROWS))


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(tiles, "TILE", 8)
    tiles._of_plain_rows.cache_clear()
    yield
    tiles._of_plain_rows.cache_clear()


def calls(rule: Visibility, rows: Coordinates, dtype=torch.float64, **settings) -> list[Call]:
    """The same call with a dense view and with one in tiles."""
    generator = torch.Generator().manual_seed(1)
    made: list[Call] = []
    drawn = torch.randn(3, 2, HEADS, LENGTH, 8, generator=generator, dtype=dtype)
    for tiling in ("never", "always"):
        parts = [part.clone().requires_grad_() for part in drawn]
        given = {"rate": 0.0, "noise": None, "site": None, **settings}
        made.append(Call(*parts, view(rule, rows, tiling=tiling, heads=HEADS), **given))
    return made


def same(dense: Call, laid_out: Call, atol: float) -> None:
    weight = torch.randn(2, HEADS, LENGTH, 8, generator=torch.Generator().manual_seed(2))
    found: list[list[torch.Tensor]] = []
    for call, kernel in ((dense, "explicit"), (laid_out, "tiled")):
        context = attend(call, kernel)
        (context * weight).sum().backward()
        gradients = [part.grad for part in (call.query, call.key, call.value)]
        found.append([context.detach(), *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=atol)


@every_kind_of_rows
@every_rule
def test_tiles_compute_what_the_dense_rule_does(rule, rows):
    same(*calls(rule, rows()), atol=1e-9)


@every_kind_of_rows
def test_the_same_weights_are_dropped(rows):
    settings = {"rate": 0.2, "noise": Noise.of(0, 3, first_row=5)}
    same(*calls(RULES["bigbird-in-documents"], rows(), **settings), atol=1e-9)
    same(*calls(RULES["longformer"], rows(), torch.float32, **settings), atol=1e-5)
    same(*calls(RULES["dilated-in-documents"], rows(), **settings), atol=1e-9)


@every_kind_of_rows
@every_rule
def test_nothing_comes_from_where_the_rule_hides(rule, rows):
    coordinates = rows()
    _, call = calls(rule, coordinates)
    context = attend(call, "tiled")
    allowed = torch.stack(
        [
            rule.at_head(head).visible(coordinates.queries(), coordinates.keys()).expand(2, -1, -1)
            for head in range(HEADS)
        ],
        dim=1,
    )
    if coordinates.document is not None:
        allowed = allowed & (coordinates.document >= 0)[:, None, None]
    for place in range(0, LENGTH, 13):
        (gradient,) = torch.autograd.grad(
            context[:, :, place].square().sum(), call.value, retain_graph=True
        )
        assert torch.equal(gradient.abs().sum(3) > 0, allowed[:, :, place])


def test_a_place_that_sees_nothing_gets_zeros():
    _, call = calls(SameDocument(), padded())
    context = attend(call, "tiled")
    assert context[0, :, 60:].abs().max() == 0
    context.sum().backward()
    assert call.query.grad.isfinite().all()


def test_terms_and_weights_are_refused_by_naming_who_has_them():
    _, call = calls(Window(size=5), plain())
    with pytest.raises(UserError, match=r"'tiled' lacks a term of the scores"):
        attend(replace(call, bias=torch.zeros(1, 3, LENGTH, LENGTH)), "tiled")
    model = Model.build(toy("longformer", "encoder.mixer.kernel=tiled"), VOCABULARY)
    with (
        model.record("*.weights"),
        pytest.raises(UserError, match=r"weights to look at.*explicit"),
    ):
        model(torch.zeros(1, 24, dtype=torch.int64))
    alibi = toy("bert", "encoder.mixer.kernel=tiled", "encoder.positions={kind: alibi}")
    with pytest.raises(UserError, match=r"a term of the scores.*explicit or sdpa"):
        Model.build(alibi, VOCABULARY)(torch.zeros(1, 24, dtype=torch.int64))


@pytest.mark.parametrize("name", ["window", "longformer", "bigbird", "dilated-in-all-heads"])
def test_work_grows_as_the_length_does(name):
    pairs = [
        laid_out(RULES[name], Coordinates(torch.arange(length)[None])).pairs
        for length in (256, 512, 1024)
    ]
    # Of a Longformer one tile of queries, of a BigBird two see everything.
    assert pairs[1] / pairs[0] < 2.1
    assert pairs[2] / pairs[1] < 2.1


@pytest.mark.parametrize("others", [Bidirectional(), Causal(), Global()], ids=lambda r: r.kind)
def test_heads_that_reach_further_cost_what_the_others_do(others):
    rows = Coordinates(torch.arange(1024)[None])
    rule = DILATED | others if isinstance(others, Global) else DILATED & others
    dilated, near = laid_out_by_head(rule, rows, HEADS)
    assert dilated.heads.tolist() == [0, 1]
    assert near.heads.tolist() == [2]
    # Where the places of one rest end and those of the next begin, a tile meets both.
    assert near.pairs <= dilated.pairs < 1.1 * near.pairs


def test_tiles_are_taken_where_they_pay(monkeypatch):
    monkeypatch.setattr(tiles, "SHORTEST", 64)
    plain_rows = Coordinates(torch.arange(128)[None])
    assert view(Window(size=5), plain_rows, tiling="auto").shape == "tiles"
    assert view(Window(size=40), plain_rows, tiling="auto").shape == "mask"
    assert view(Window(size=5), plain(), tiling="never").shape == "mask"
    assert view(Bidirectional(), plain_rows, tiling="auto").shape == "all"
    short = Coordinates(torch.arange(60)[None])
    assert view(Window(size=5), short, tiling="auto").shape == "mask"


@pytest.mark.parametrize("system", ["longformer", "bigbird"])
def test_a_model_computes_the_same_with_tiles(system):
    pieces = torch.randint(5, VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(0))
    coordinates = Coordinates(torch.arange(40)[None], document=padded().document[:, :40])
    dense, laid = (
        Model.build(toy(system, f"encoder.mixer.kernel={kernel}"), VOCABULARY).double()
        for kernel in ("explicit", "tiled")
    )
    for rows in (None, coordinates):
        torch.testing.assert_close(laid(pieces, rows), dense(pieces, rows), atol=1e-9, rtol=1e-9)


def test_random_blocks_are_others_than_those_that_are_seen_anyway():
    places = Coordinates(torch.arange(64)[None]).measured()
    drawn = torch.stack(RandomBlocks(number=3, block=4).drawn(places), -1)[0]
    assert torch.equal(drawn[::4], drawn[3::4])
    for block, row in enumerate(drawn[::4].tolist()):
        assert len({*row}) == 3
        assert not {*row} & {0, 15, block - 1, block, block + 1}
        assert all(0 < other < 15 for other in row)


def test_random_blocks_are_a_function_of_seed_and_block_of_the_encoder():
    places = Coordinates(torch.arange(400)[None]).measured()

    def drawn(rule: Visibility) -> torch.Tensor:
        return torch.stack(rule.drawn(places))

    rule = RandomBlocks(block=4)
    assert torch.equal(drawn(rule), drawn(RandomBlocks(block=4).at_block(0)))
    assert not torch.equal(drawn(rule), drawn(rule.at_block(1)))
    assert not torch.equal(drawn(rule), drawn(RandomBlocks(block=4, seed=1)))


def test_every_block_is_drawn_about_as_often():
    places = Coordinates(torch.arange(3200)[None]).measured()
    drawn = torch.stack(
        [torch.stack(RandomBlocks(block=4, layer=n).drawn(places)) for n in range(9)]
    )
    counts = torch.bincount(drawn.flatten()[::4])[1:799].float()
    assert counts.mean() == pytest.approx(27, rel=0.02)
    assert counts.std() == pytest.approx(27**0.5, rel=0.15)


def test_few_blocks_leave_nothing_to_draw():
    places = Coordinates(torch.arange(24)[None]).measured()
    drawn = torch.stack(RandomBlocks(number=3, block=4).drawn(places), -1)[0, ::4]
    assert drawn[2].sort().values.tolist() == [-1, -1, 4]


def test_bigbird_by_hand():
    coordinates = Coordinates(torch.arange(16)[None])
    rule = Window(size=1, block=2) | Global(first=1, last=1, block=2)
    seen = rule.visible(coordinates.queries(), coordinates.keys())[0, ::2, ::2].int()
    assert seen.tolist() == [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0, 1],
        [1, 1, 1, 1, 0, 0, 0, 1],
        [1, 0, 1, 1, 1, 0, 0, 1],
        [1, 0, 0, 1, 1, 1, 0, 1],
        [1, 0, 0, 0, 1, 1, 1, 1],
        [1, 0, 0, 0, 0, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
    ]


def test_the_ends_of_a_padded_row_are_those_of_its_text():
    document = torch.zeros(1, 16, dtype=torch.int64)
    document[0, 11:] = -1
    coordinates = Coordinates(torch.arange(16)[None], document=document)
    rule = Global(first=0, last=1, block=4)
    assert rule.wide(coordinates.measured())[0].nonzero().flatten().tolist() == [8, 9, 10]
    assert not Short(length=10).visible(coordinates.queries(), coordinates.keys()).any()
    assert Short(length=11).visible(coordinates.queries(), coordinates.keys()).all()


def test_weights_of_wide_places_are_dropped_whatever_the_batch_holds():
    """Rows have more or fewer places that see everything: another text begins in them."""
    model = Model.build(toy("longformer", "encoder.mixer.dropout=0.5"), VOCABULARY)
    pieces = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    document = torch.tensor([[0] * 24, [0] * 8 + [1] * 8 + [2] * 8])
    position = torch.arange(24).expand(2, -1)

    def states(rows: slice) -> torch.Tensor:
        own = Coordinates(torch.arange(24)[None], position[rows], document=document[rows])
        return model.encoder(pieces[rows], own, noise=Noise.of(0, 3))

    torch.testing.assert_close(states(slice(0, 2))[:1], states(slice(0, 1)))


def test_global_rows_by_hand():
    torch.manual_seed(0)
    choice = AttentionChoice(heads=2, global_projections=True)
    mixer = choice.build(16, NoPositions(), LayerNormChoice()).double()
    x = torch.randn(2, 10, 16, dtype=torch.float64)
    document = torch.zeros(2, 10, dtype=torch.int64)
    document[1, 7:] = -1
    coordinates = Coordinates(torch.arange(10)[None], document=document)
    rule = Window(size=1) | Global(first=0, positions=(2, 8))
    found = mixer(x, Surroundings(view(rule, coordinates, tell_wide=True)))

    def heads(of: torch.nn.Linear, part: int) -> torch.Tensor:
        return of(x).view(2, 10, 3, 2, 8)[:, :, part].transpose(1, 2)

    context = torch.zeros(2, 2, 10, 8, dtype=torch.float64)
    for row, head, place in product(range(2), range(2), range(10)):
        real = [k for k in range(10) if document[row, k] == 0]
        wide = place in (2, 8) and place in real
        seen = real if wide else [k for k in real if abs(k - place) <= 1 or k in (2, 8)]
        if place not in real:
            continue
        of = mixer.global_rows.projection if wide else mixer.projection
        query, key, value = (heads(of, part)[row, head] for part in range(3))
        scores = torch.stack([query[place] @ key[k] for k in seen]) / 8**0.5
        context[row, head, place] = torch.softmax(scores, 0) @ value[seen]
    expected = mixer.output(context.transpose(1, 2).reshape(2, 10, 16))
    torch.testing.assert_close(found[0], expected[0], atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(found[1, :7], expected[1, :7], atol=1e-9, rtol=1e-9)


def test_as_wide_as_the_row_and_with_copied_projections_it_is_plain_attention():
    recipe = toy("longformer")
    model = Model.build(recipe, VOCABULARY)
    for name, parameter in model.named_parameters():
        if "global_rows" in name:
            local = model.get_parameter(name.replace("global_rows.", ""))
            parameter.data.copy_(local.data)
    pieces = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    found = model(pieces, rule=Window(size=24) | Global())
    torch.testing.assert_close(found, model(pieces, rule=Bidirectional()), atol=1e-5, rtol=1e-5)
