"""Adaptive computation time, and layer dropout."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.encoder.layer_stack import AdaptiveComputationTime, LayerStack, StackContext
from bertwright.models import Model
from bertwright.models.costs import num_parameters_by_part
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe
from toy_recipes import SYSTEMS, VOCABULARY, shaken, toy, toy_batch

LENGTH, WIDTH, HEADS = 7, 32, 2


def randomised(model: Model, size: float = 0.3) -> Model:
    return shaken(model.double(), size).requires_grad_(False)


def random_tokens(num_sequences: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_sequences, LENGTH), generator=generator)


def sinusoid(number: int) -> Tensor:
    vector = torch.empty(WIDTH, dtype=torch.float64)
    for channel in range(0, WIDTH, 2):
        angle = number / 10000 ** (channel / WIDTH)
        vector[channel], vector[channel + 1] = math.sin(angle), math.cos(angle)
    return vector


def norm(module, x: Tensor) -> Tensor:
    return F.layer_norm(x, (WIDTH,), module.weight, module.bias, 1e-6)


def transition(block, x: Tensor) -> Tensor:
    """Run one post-norm block: attention, then the position-wise feed-forward."""
    attention, feed_forward = block.sublayers["attention"], block.sublayers["feed_forward"]
    query, key, value = attention.projection(x).view(LENGTH, 3, HEADS, -1).permute(1, 2, 0, 3)
    scores = query @ key.transpose(1, 2) / math.sqrt(WIDTH / HEADS)
    mixed = (torch.softmax(scores, -1) @ value).transpose(0, 1).reshape(LENGTH, WIDTH)
    x = norm(block.norms["attention"], x + attention.output(mixed))
    changed = feed_forward.down(torch.relu(feed_forward.up(x)))
    return norm(block.norms["feed_forward"], x + changed)


@pytest.mark.parametrize("learned", [False, True])
def test_hidden_states_follow_the_equations(learned: bool) -> None:
    changes = ["encoder.positions.learned=5"] if learned else []
    recipe = toy("universal-transformer", "encoder.depth.layers=5", *changes)
    model = randomised(Model.build(recipe, VOCABULARY))
    unit, embeddings = model.encoder.layer_stack.halting_unit, model.encoder.embeddings
    unit.weight.mul_(4.0)
    unit.bias.fill_(-1.0)
    block = get_blocks(model.encoder)[0]
    x = embeddings.tokens.weight[random_tokens()[0]] * math.sqrt(WIDTH)
    total, mean = [0.0] * LENGTH, torch.zeros_like(x)
    steps, last = [0] * LENGTH, [0.0] * LENGTH
    for step in range(5):
        signal = embeddings.positions.table.weight[step] if learned else sinusoid(step + 1)
        before = x + torch.stack([sinusoid(position) for position in range(LENGTH)]) + signal
        after = transition(block, before)
        probabilities = torch.sigmoid(unit(x))[:, 0]
        x = x.clone()
        for position in range(LENGTH):
            if total[position] >= 1.0:
                continue
            weight, ends = float(probabilities[position]), step == 4
            if ends or total[position] + weight > 0.99:
                weight, ends = 1.0 - total[position], True
                last[position] = weight
            x[position] = after[position]
            mean[position] += weight * after[position]
            steps[position] += 1
            total[position] = 1.0 if ends else total[position] + weight
    assert len(set(steps)) > 1
    aux_outputs: dict[str, Tensor] = {}
    states = model.encoder(random_tokens(), aux_outputs=aux_outputs)[0]
    torch.testing.assert_close(states, mean, atol=1e-9, rtol=1e-9)
    expected = torch.tensor([n + r for n, r in zip(steps, last, strict=True)], dtype=torch.float64)
    torch.testing.assert_close(aux_outputs["ponder"][0], expected, atol=1e-9, rtol=1e-9)


def test_without_halting_or_positions_it_is_a_shared_stack() -> None:
    plain = ("encoder.positions.kind=none", "objectives.ponder=null", "encoder.depth.layers=3")
    halting = randomised(Model.build(toy("universal-transformer", *plain), VOCABULARY))
    stack = ("encoder.depth={kind: stack, layers: 3, sharing: all}",)
    shared = Model.build(toy("universal-transformer", *plain, *stack), VOCABULARY).double()
    state = {n: p for n, p in halting.state_dict().items() if ".layer_stack." not in n}
    shared.load_state_dict(state)
    halting.encoder.layer_stack.halting_unit.weight.zero_()
    halting.encoder.layer_stack.halting_unit.bias.fill_(-60.0)
    torch.testing.assert_close(
        halting(random_tokens()), shared(random_tokens()), atol=1e-12, rtol=0
    )


def test_halting_is_independent_of_padding_and_batch() -> None:
    model = randomised(Model.build(toy("universal-transformer", "encoder.depth.layers=6"), 40))
    model.encoder.layer_stack.halting_unit.bias.fill_(-1.5)
    document_ids = torch.tensor([[0] * 5 + [-1] * 2, [0] * 7])
    together: dict[str, Tensor] = {}
    index = torch.arange(LENGTH)[None]
    states = model.encoder(
        random_tokens(2), TokenInfo(index, document_ids=document_ids), aux_outputs=together
    )
    alone: dict[str, Tensor] = {}
    expected = model.encoder(random_tokens(2)[:1, :5], aux_outputs=alone)
    torch.testing.assert_close(states[:1, :5], expected)
    torch.testing.assert_close(together["ponder"][:1, :5], alone["ponder"])
    assert not together["ponder"][0, 5:].any()
    assert not states[0, 5:].any()


def test_the_ponder_loss_is_the_mean_over_real_tokens() -> None:
    recipe = toy("universal-transformer", "encoder.depth.layers=4")
    model = Model.build(recipe, VOCABULARY)
    batch = toy_batch(recipe, 0)
    loss = model.losses(batch, recipe.objectives)["ponder"]
    aux_outputs: dict[str, Tensor] = {}
    model.encoder(batch.token_ids, batch.token_info, aux_outputs=aux_outputs)
    assert loss.count == batch.num_tokens
    torch.testing.assert_close(loss.sum, aux_outputs["ponder"].sum())
    # With a bias of 1 the first probability is about 0.73, and the second halts.
    assert float(loss.num_correct) == loss.count
    assert float(loss.sum.detach()) / loss.count == pytest.approx(2.27, abs=0.05)


def test_a_universal_transformer_is_one_block_and_its_halting_unit() -> None:
    parts = num_parameters_by_part(Recipe.load("universal-transformer-base"))
    assert parts["blocks"] == 12_596_224
    assert parts["layer_stack"] == 1025
    assert parts["embeddings"] == 30_522 * 1024
    learned = Recipe.load("universal-transformer-base", "encoder.positions.learned=12")
    assert num_parameters_by_part(learned)["embeddings"] - parts["embeddings"] == 12 * 1024


def test_layer_dropout_rate_is_the_same_for_all_sequences() -> None:
    layer_stack, blocks = LayerStack(drop_rate=0.25), range(8)
    blocks_run = [
        list(layer_stack.select_blocks(blocks, DropoutRng.for_step(0, step))) for step in range(600)
    ]
    fractions = [sum(index in step for step in blocks_run) / len(blocks_run) for index in blocks]
    assert all(fraction == pytest.approx(0.75, abs=0.07) for fraction in fractions)
    assert len({tuple(step) for step in blocks_run}) > 100
    assert blocks_run == [
        list(layer_stack.select_blocks(blocks, DropoutRng.for_step(0, step, 5)))
        for step in range(600)
    ]
    assert blocks_run != [
        list(layer_stack.select_blocks(blocks, DropoutRng.for_step(1, step))) for step in range(600)
    ]


def run_encoder(dropout_rng: DropoutRng | None, *changes: str) -> tuple[Encoder, list[int]]:
    """Return an encoder of six blocks, and the blocks that a pass runs."""
    encoder = Model.build(toy("bert", "encoder.depth.layers=6", *changes), VOCABULARY).encoder
    with encoder.record("blocks.[0-9].input") as values:
        encoder(random_tokens(), dropout_rng=dropout_rng)
    return encoder, [int(name.split(".")[1]) for name in values]


def test_dropped_blocks_do_not_run() -> None:
    dropout_rng = DropoutRng.for_step(0, 3)
    encoder, blocks_run = run_encoder(dropout_rng, "encoder.depth.drop=0.5")
    assert 0 < len(blocks_run) < 6
    assert blocks_run == list(encoder.layer_stack.select_blocks(range(6), dropout_rng))
    assert run_encoder(None, "encoder.depth.drop=0.5")[1] == list(range(6))
    assert run_encoder(None, "encoder.depth.drop=0.5", "encoder.depth.every=2")[1] == [0, 2, 4]
    assert run_encoder(dropout_rng)[1] == list(range(6))


def test_halting_keeps_hidden_states_in_bfloat16() -> None:
    halting = AdaptiveComputationTime(WIDTH, 0.01)
    x = torch.randn(2, LENGTH, WIDTH, dtype=torch.bfloat16)
    with torch.no_grad():
        halting.to(torch.bfloat16)
        mean = halting(x, range(4), StackContext(lambda index: lambda states, is_running: states))
    torch.testing.assert_close(mean, x, atol=3e-2, rtol=3e-2)


def test_all_blocks_are_recorded_after_every_token_halts() -> None:
    recipe = toy("universal-transformer")
    encoder = shaken(Model.build(recipe, 40), 0.1).eval().encoder
    torch.nn.init.constant_(encoder.layer_stack.halting_unit.bias, 30.0)
    token_ids = torch.randint(5, 40, (2, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = encoder(token_ids)
        with encoder.record("blocks.*.residual") as values:
            actual = encoder(token_ids)
    assert len(values) == encoder.num_running_blocks > 1
    torch.testing.assert_close(actual, expected, atol=0, rtol=0)
    first = values["blocks.0.residual"]
    assert all(torch.equal(state, first) for state in values.values())


@pytest.mark.parametrize(
    ("system", "change", "reason"),
    [
        ("gpt-bert", "encoder.depth.drop=0.1", "need every block to run"),
        ("transformer-xl", "encoder.depth.drop=0.1", "need every block to run"),
        ("universal-transformer", "encoder.depth.drop=0.1", "cannot be combined with drop"),
        ("universal-transformer", "encoder.positions.learned=3", "less than the number of blocks"),
        ("universal-transformer", "encoder.depth.kind=stack", "needs adaptive computation"),
        ("mobilebert", "encoder.positions.kind=every-block", "choose another positions.kind"),
        ("mobilebert", "encoder.norm.placement=pre", "norm.placement to post"),
        ("mobilebert", "encoder.mixer.gate=gelu", "mixer.gate and mixer.width to null"),
        ("bert", "encoder.depth.order=sfs", "one attention at most"),
    ],
)
def test_incompatible_settings_are_rejected(system: str, change: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Recipe.load(system, change)


NEED_BLOCKS = {"bart", "mass", "t5", "transformer", "tsdae", "universal-transformer", "xlm-e"}
"""Systems whose decoder, or whose objective, reads blocks."""


@pytest.mark.parametrize("system", sorted({*SYSTEMS} - NEED_BLOCKS))
def test_every_encoder_may_have_no_blocks(system: str) -> None:
    model = Model.build(toy(system, "encoder.depth={kind: none}"), VOCABULARY)
    assert model.encoder(torch.full((2, LENGTH), 7)).shape == (2, LENGTH, 32)


def looped_model(*changes: str) -> Model:
    """Return a model with a block before and after a loop of two blocks, which runs three times."""
    depth = "encoder.depth={kind: loop, before: 1, looped: 2, times: 3, after: 1}"
    return randomised(Model.build(toy("modern", depth, *changes), VOCABULARY))


def test_a_loop_runs_its_blocks_in_turn() -> None:
    """It equals a stack of eight blocks with copies of the parameters, and so do its gradients."""
    looped = looped_model().requires_grad_(True)
    changes = "encoder.depth={kind: stack, layers: 8}"
    unrolled = Model.build(toy("modern", changes), VOCABULARY).double()
    unrolled.load_state_dict(looped.state_dict())
    states = [model.encoder(random_tokens()) for model in (looped, unrolled)]
    assert torch.equal(*states)
    for state in states:
        state.square().sum().backward()
    copies = ([0], [1, 3, 5], [2, 4, 6], [7])
    blocks = get_blocks(unrolled.encoder)
    for numbers in copies:
        for name, parameter in get_blocks(looped.encoder)[numbers[0]].named_parameters():
            parts = [blocks[number].get_parameter(name).grad for number in numbers]
            torch.testing.assert_close(parameter.grad, torch.stack(parts).sum(0))


def test_a_loop_has_the_parameters_of_one_pass() -> None:
    changes = ("encoder.depth={kind: stack, layers: 4}",)
    expected = num_parameters_by_part(toy("modern", *changes))
    assert num_parameters_by_part(looped_model().recipe) == expected


@pytest.mark.parametrize(
    ("depth", "message"),
    [
        ("{kind: loop, groups: 2}", "leave it out of a loop"),
        ("{kind: loop, looped: 600}", "must be 1,024 or less"),
        ("{kind: loop, before: 0}", "norm.skip_first omits the first norm"),
    ],
)
def test_an_invalid_loop_is_rejected(depth: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        toy("modern", f"encoder.depth={depth}")
