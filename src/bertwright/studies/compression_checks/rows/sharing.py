"""Blocks that share their parameters: which, and what it is worth; and a trained model whose blocks
become one."""

from collections.abc import Mapping

import torch
from torch import nn

from bertwright.analysis.planted.expecting import Expected, equal
from bertwright.compression.factorised_table import factorised
from bertwright.compression.sharing import Sharing
from bertwright.model.counting import parameters_by_part
from bertwright.model.model import Model
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

LAYERS = 4
MODES = {"none": (4, 4), "attention": (1, 4), "feed-forward": (4, 1), "all": (1, 1)}
"""How many attentions, and how many feed-forwards, there are then."""


def run(ground: Ground) -> Came:
    """The four modes read equally much; a model of a task is taught and left alone."""
    yield from _parameters(ground)
    yield from _unrolled(ground)
    yield from _made_one(ground)
    losses: dict[str, list[float]] = {mode: [] for mode in MODES}
    for seed in ground.seeds:
        for mode, found in losses.items():
            recipe = ground.recipe(_shared(mode), seed=seed)
            learned = ground.learned(f"c12-{mode}-{seed}", recipe)
            found.append(learned.figures["masked_loss"])
    yield Measured("masked loss, nothing shared", losses["none"])
    for mode in ("attention", "feed-forward", "all"):
        yield Measured(f"masked loss, {mode} shared", losses[mode], "nothing", losses["none"])
    found = ground.compressed(ground.tuned("sentiment"), "albert-share", alone=True)
    yield Measured("accuracy, blocks become one", found.scores, "labels alone", found.alone)
    yield Measured("accuracy, teacher", [found.of_teacher])


def _shared(mode: str) -> str:
    return f"encoder.depth.sharing={mode}"


def _parameters(ground: Ground) -> Came:
    """Of the blocks, by how many of each part there are."""
    width = 64
    attention = 4 * width * (width + 1) + 2 * width
    feed_forward = 8 * width * width + 5 * width + 2 * width
    size = ground.data.tokenizer.size
    for mode, (attentions, feed_forwards) in MODES.items():
        found = parameters_by_part(ground.recipe(_shared(mode)), size)["blocks"]
        wanted = attentions * attention + feed_forwards * feed_forward
        yield equal(f"parameters of blocks, {mode}", found, wanted, 0)


def _unrolled(ground: Ground) -> Came:
    """A stack that shares, and one of as many blocks with the same parameters each: equal states,
    and the slope of what is shared is the sum of theirs."""
    size = ground.data.tokenizer.size
    one = Model.build(ground.recipe(_shared("all")), size).encoder.double()
    many = Model.build(ground.recipe(), size).encoder.double()
    many.load_state_dict(one.state_dict())
    pieces = torch.randint(5, size, (3, 12), generator=torch.Generator().manual_seed(0))
    states = [encoder(pieces) for encoder in (one, many)]
    numbers = [each.detach().numpy() for each in states]
    yield equal("states, shared against unrolled", numbers[0], numbers[1], 1e-12)
    for each in states:
        each.square().sum().backward()
    yield _slopes(dict(one.named_parameters()), dict(many.named_parameters()))


def _made_one(ground: Ground) -> Came:
    """Blocks that are equal and tables of a plane: one block and two factors of a table in their
    place give the same states."""
    size, rank = ground.data.tokenizer.size, 8
    model = Model.build(ground.recipe("encoder.norm.placement=post"), size)
    draw = torch.Generator().manual_seed(0)
    plane = torch.randn(rank, 64, generator=draw)
    for block in model.encoder.blocks:
        block.load_state_dict(model.encoder.blocks[0].state_dict())
    for table in model.encoder.embeddings.parameters():
        if table.ndim == 2:
            table.data = torch.randn(len(table), rank, generator=draw) @ plane
    small = factorised(Sharing().shared(model), rank + 1)
    pieces = torch.randint(5, size, (3, 12), generator=draw)
    with torch.no_grad():
        states = [each.encoder.double()(pieces).numpy() for each in (small, model)]
    yield equal("states, equal blocks and a plane of vectors", states[0], states[1], 1e-4)


def _slopes(one: Mapping[str, nn.Parameter], many: Mapping[str, nn.Parameter]) -> Expected:
    apart = 0.0
    for name, parameter in one.items():
        if not name.startswith("blocks.0."):
            continue
        assert parameter.grad is not None, "every parameter of a block is used"
        places = [many[name.replace("blocks.0.", f"blocks.{n}.")].grad for n in range(LAYERS)]
        total = torch.stack([each for each in places if each is not None]).sum(0)
        apart = max(apart, float((parameter.grad - total).abs().max() / total.abs().max()))
    return equal("slopes of what is shared, against the sum over its uses", apart, 0, 1e-10)


ROW = Row(
    "C12",
    "sharing",
    "What is lost where blocks share their attention, their feed-forward, or both, from the first "
    "or later?",
    "Lan et al. 2020",
    run,
)
