"""Blocks that take the place of those of a fine-tuned model, by chance at first, then for good."""

import torch

from bertwright.analysis.planted.expecting import Expected, same
from bertwright.compression.replacement import Either, Replacement
from bertwright.encoder.kernels.noise import Noise
from bertwright.schedules import Constant
from bertwright.significance import of_count
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "inference"
DRAWS, RATE = 400, 0.3


def run(ground: Ground) -> Came:
    """Ever more often, half of the time and then always, and from the first step on always."""
    yield from _either(ground)
    teacher, given = ground.tuned(TASK), ground.given(TASK, 2 * ground.size.few)
    before = {name: tensor.clone() for name, tensor in teacher.net.state_dict().items()}
    linear = ground.compressed(teacher, "theseus-linear", given=given, layers=2, alone=True)
    constant = ground.compressed(teacher, "theseus-constant", given=given, layers=2)
    after = teacher.net.state_dict()
    unmoved = all(tensor.equal(after[name]) for name, tensor in before.items())
    yield same("the predecessor is as it was", unmoved, True)
    for name, found in (("linear", linear), ("constant", constant)):
        yield Measured(f"accuracy, {name}", found.scores, "plain fine-tuning", linear.alone)


def _either(ground: Ground) -> Came:
    """At a rate of 0 the predecessor runs, at 1 the successor; between, as often as is said."""
    predecessor = ground.tuned(TASK)
    encoder = Replacement(predecessor, Constant(value=1.0)).successor(2).model.encoder
    old = predecessor.net.encoder
    pieces = torch.randint(5, 90, (3, 8), generator=torch.Generator().manual_seed(0))
    noise = Noise.of(0, 0, 0, pieces.device)
    with torch.no_grad():
        wanted = {0.0: old(pieces), 1.0: encoder(pieces)}
        for rate, states in wanted.items():
            encoder.passage = Either(list(old.blocks), 2, rate)
            found = encoder(pieces, noise=noise)
            yield same(f"states at a rate of {rate:g}, bit for bit", found.equal(states), True)
        yield _as_often(encoder, list(old.blocks))


def _as_often(encoder: torch.nn.Module, old: list[torch.nn.Module]) -> Expected:
    ran: list[int] = []

    def counts(*_: object) -> None:
        ran.append(1)

    blocks = encoder.get_submodule("blocks")
    for block in blocks.children():
        block.register_forward_hook(counts)
    encoder.passage = Either(old, 2, RATE)
    for step in range(DRAWS):
        encoder(torch.tensor([[5, 6]]), noise=Noise.of(0, step, 0, torch.device("cpu")))
    interval = of_count(len(ran), 2 * DRAWS, level=0.999)
    return Expected("share of blocks that were replaced", RATE, interval.low, interval.high)


ROW = Row(
    "C13",
    "theseus",
    "Is a model better replaced part by part than cut at once?",
    "Xu et al. 2020",
    run,
)
