"""Depths that are not the same for all: halting place by place, and blocks that are left out."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.encoder.encoder import Encoder, blocks_of
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.passage import Halting, Passage
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe
from recipes_at_toy_size import SYSTEMS, VOCABULARY, shaken, toy, toy_batch

LENGTH, WIDTH, HEADS = 7, 32, 2


def randomised(model: Model, size: float = 0.3) -> Model:
    return shaken(model.double(), size).requires_grad_(False)


def pieces(num_rows: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_rows, LENGTH), generator=generator)


def wave(number: int) -> Tensor:
    found = torch.empty(WIDTH, dtype=torch.float64)
    for channel in range(0, WIDTH, 2):
        angle = number / 10000 ** (channel / WIDTH)
        found[channel], found[channel + 1] = math.sin(angle), math.cos(angle)
    return found


def norm(module, x: Tensor) -> Tensor:
    return F.layer_norm(x, (WIDTH,), module.weight, module.bias, 1e-6)


def transition(block, x: Tensor) -> Tensor:
    """One step of the recurrence, post-norm: attention, then the position-wise transition."""
    attention, feed_forward = block.sublayers["attention"], block.sublayers["feed_forward"]
    query, key, value = attention.projection(x).view(LENGTH, 3, HEADS, -1).permute(1, 2, 0, 3)
    scores = query @ key.transpose(1, 2) / math.sqrt(WIDTH / HEADS)
    mixed = (torch.softmax(scores, -1) @ value).transpose(0, 1).reshape(LENGTH, WIDTH)
    x = norm(block.norms["attention"], x + attention.output(mixed))
    changed = feed_forward.down(torch.relu(feed_forward.up(x)))
    return norm(block.norms["feed_forward"], x + changed)


@pytest.mark.parametrize("learned", [False, True])
def test_states_are_those_of_the_equations(learned: bool) -> None:
    changes = ["encoder.positions.learned=5"] if learned else []
    recipe = toy("universal-transformer", "encoder.depth.layers=5", *changes)
    model = randomised(Model.build(recipe, VOCABULARY))
    unit, embeddings = model.encoder.passage.unit, model.encoder.embeddings
    unit.weight.mul_(4.0)
    unit.bias.fill_(-1.0)
    block = blocks_of(model.encoder)[0]
    x = embeddings.pieces.weight[pieces()[0]] * math.sqrt(WIDTH)
    spent, mean = [0.0] * LENGTH, torch.zeros_like(x)
    steps, last = [0] * LENGTH, [0.0] * LENGTH
    for step in range(5):
        signal = embeddings.positions.table.weight[step] if learned else wave(step + 1)
        before = x + torch.stack([wave(place) for place in range(LENGTH)]) + signal
        after = transition(block, before)
        chances = torch.sigmoid(unit(x))[:, 0]
        x = x.clone()
        for place in range(LENGTH):
            if spent[place] >= 1.0:
                continue
            weight, ends = float(chances[place]), step == 4
            if ends or spent[place] + weight > 0.99:
                weight, ends = 1.0 - spent[place], True
                last[place] = weight
            x[place] = after[place]
            mean[place] += weight * after[place]
            steps[place] += 1
            spent[place] = 1.0 if ends else spent[place] + weight
    assert len(set(steps)) > 1
    notes: dict[str, Tensor] = {}
    found = model.encoder(pieces(), notes=notes)[0]
    torch.testing.assert_close(found, mean, atol=1e-9, rtol=1e-9)
    expected = torch.tensor([n + r for n, r in zip(steps, last, strict=True)], dtype=torch.float64)
    torch.testing.assert_close(notes["ponder"][0], expected, atol=1e-9, rtol=1e-9)


def test_what_never_halts_and_knows_no_position_is_a_stack_that_shares_all() -> None:
    plain = ("encoder.positions.kind=none", "objectives.ponder=null", "encoder.depth.layers=3")
    halting = randomised(Model.build(toy("universal-transformer", *plain), VOCABULARY))
    stack = ("encoder.depth={kind: stack, layers: 3, sharing: all}",)
    shared = Model.build(toy("universal-transformer", *plain, *stack), VOCABULARY).double()
    own = {n: p for n, p in halting.state_dict().items() if ".passage." not in n}
    shared.load_state_dict(own)
    halting.encoder.passage.unit.weight.zero_()
    halting.encoder.passage.unit.bias.fill_(-60.0)
    torch.testing.assert_close(halting(pieces()), shared(pieces()), atol=1e-12, rtol=0)


def test_how_long_a_place_takes_depends_neither_on_padding_nor_on_batch_mates() -> None:
    model = randomised(Model.build(toy("universal-transformer", "encoder.depth.layers=6"), 40))
    model.encoder.passage.unit.bias.fill_(-1.5)
    document = torch.tensor([[0] * 5 + [-1] * 2, [0] * 7])
    together: dict[str, Tensor] = {}
    place = torch.arange(LENGTH)[None]
    states = model.encoder(pieces(2), Coordinates(place, document=document), notes=together)
    alone: dict[str, Tensor] = {}
    expected = model.encoder(pieces(2)[:1, :5], notes=alone)
    torch.testing.assert_close(states[:1, :5], expected)
    torch.testing.assert_close(together["ponder"][:1, :5], alone["ponder"])
    assert not together["ponder"][0, 5:].any()
    assert not states[0, 5:].any()


def test_the_ponder_loss_is_the_mean_over_real_places_and_counts_who_halted() -> None:
    recipe = toy("universal-transformer", "encoder.depth.layers=4")
    model = Model.build(recipe, VOCABULARY)
    batch = toy_batch(recipe, 0)
    loss = model.losses(batch, recipe.objectives)["ponder"]
    notes: dict[str, Tensor] = {}
    model.encoder(batch.pieces, batch.coordinates, notes=notes)
    assert loss.count == batch.num_tokens
    torch.testing.assert_close(loss.sum, notes["ponder"].sum())
    # With a bias of 1 the first probability is about .73, and the second ends it.
    assert float(loss.correct) == loss.count
    assert float(loss.sum.detach()) / loss.count == pytest.approx(2.27, abs=0.05)


def test_a_universal_transformer_is_one_block_and_its_halting_unit() -> None:
    parts = parameters_by_part(Recipe.load("universal-transformer-base"))
    assert parts["blocks"] == 12_596_224
    assert parts["passage"] == 1025
    assert parts["embeddings"] == 30_522 * 1024
    learned = Recipe.load("universal-transformer-base", "encoder.positions.learned=12")
    assert parameters_by_part(learned)["embeddings"] - parts["embeddings"] == 12 * 1024


def test_a_block_is_left_out_in_its_share_of_the_steps_for_all_rows_and_ranks() -> None:
    passage, blocks = Passage(drop=0.25), range(8)
    ran = [list(passage.chosen(blocks, Noise.of(0, step))) for step in range(600)]
    shares = [sum(index in step for step in ran) / len(ran) for index in blocks]
    assert all(share == pytest.approx(0.75, abs=0.07) for share in shares)
    assert len({tuple(step) for step in ran}) > 100
    assert ran == [list(passage.chosen(blocks, Noise.of(0, step, 5))) for step in range(600)]
    assert ran != [list(passage.chosen(blocks, Noise.of(1, step))) for step in range(600)]


def trained(noise: Noise | None, *changes: str) -> tuple[Encoder, list[int]]:
    """An encoder of six blocks, and which of them a pass goes through."""
    encoder = Model.build(toy("bert", "encoder.depth.layers=6", *changes), VOCABULARY).encoder
    with encoder.record("blocks.[0-9].input") as values:
        encoder(pieces(), noise=noise)
    return encoder, [int(name.split(".")[1]) for name in values]


def test_what_is_dropped_is_not_run_and_otherwise_all_or_every_second_is() -> None:
    noise = Noise.of(0, 3)
    encoder, ran = trained(noise, "encoder.depth.drop=0.5")
    assert 0 < len(ran) < 6
    assert ran == list(encoder.passage.chosen(range(6), noise))
    assert trained(None, "encoder.depth.drop=0.5")[1] == list(range(6))
    assert trained(None, "encoder.depth.drop=0.5", "encoder.depth.every=2")[1] == [0, 2, 4]
    assert trained(noise)[1] == list(range(6))


def test_halting_drops_its_states_in_no_precision() -> None:
    halting = Halting(WIDTH, 0.01)
    x = torch.randn(2, LENGTH, WIDTH, dtype=torch.bfloat16)
    with torch.no_grad():
        halting.to(torch.bfloat16)
        found = halting(x, range(4), lambda index: lambda states: states)
    torch.testing.assert_close(found, x, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize(
    ("system", "change", "reason"),
    [
        ("gpt-bert", "encoder.depth.drop=0.1", "need every block to run"),
        ("transformer-xl", "encoder.depth.drop=0.1", "need every block to run"),
        ("universal-transformer", "encoder.depth.drop=0.1", "takes no drop"),
        ("universal-transformer", "encoder.positions.learned=3", "less than the number of blocks"),
        ("universal-transformer", "encoder.depth.kind=stack", "needs blocks that halt"),
        ("mobilebert", "encoder.positions.kind=every-block", "choose another positions.kind"),
        ("mobilebert", "encoder.norm.placement=pre", "norm.placement to post"),
        ("mobilebert", "encoder.mixer.gate=gelu", "mixer.gate and mixer.width to null"),
        ("bert", "encoder.depth.order=sfs", "one attention at most"),
    ],
)
def test_what_does_not_go_together_is_refused(system: str, change: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Recipe.load(system, change)


NEED_BLOCKS = {"bart", "mass", "t5", "transformer", "universal-transformer", "xlm-e"}
"""Systems whose decoder, or whose objective, reads blocks."""


@pytest.mark.parametrize("system", sorted({*SYSTEMS} - NEED_BLOCKS))
def test_every_encoder_may_have_no_blocks(system: str) -> None:
    model = Model.build(toy(system, "encoder.depth={kind: none}"), VOCABULARY)
    assert model.encoder(torch.full((2, LENGTH), 7)).shape == (2, LENGTH, 32)
