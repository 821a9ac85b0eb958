"""Blocks that take the place of those of a fine-tuned model, by chance at first, then for good."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bertwright.analysis.planted.expecting import Expected, same
from bertwright.compression.replacement import Either, Replacement
from bertwright.encoder.kernels.noise import Noise
from bertwright.schedules import Constant
from bertwright.significance import of_count
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult

TASK = "inference"
DRAWS, RATE = 400, 0.3


def run(ground: Ground) -> Came:
    """Ever more often, half of the time and then always, and from the first step on always."""
    yield from _either(ground)
    teacher, given = ground.tuned(TASK), ground.given(TASK, 2 * ground.size.few)
    linear = ground.compressed(teacher, "theseus-linear", given=given, layers=2, alone=True)
    constant = ground.compressed(teacher, "theseus-constant", given=given, layers=2)
    yield from _who_learned(teacher, [*linear.runs, *constant.runs])
    for name, found in (("linear", linear), ("constant", constant)):
        yield Measured(f"accuracy, {name}", found.scores, "plain fine-tuning", linear.alone)


def _who_learned(teacher: FineTuned, runs: Sequence[FineTuneResult]) -> Came:
    """Blocks of the successor, and nobody else: neither the predecessor that ran beside them, which
    is a copy of the teacher, nor what stands before and behind them."""
    known, moved = teacher.net.state_dict(), set[str]()
    for run in runs:
        passage = run.training.net.encoder.passage
        assert isinstance(passage, Either), "both of them ran"
        for number, block in enumerate(passage.old):
            moved |= _others(block.state_dict(), known, f"encoder.blocks.{number}.", "predecessor.")
        moved |= _others(run.model.net.state_dict(), known)
    blocks = {name for name in moved if name.startswith("encoder.blocks.")}
    yield same("what has learned beside the successor's blocks", sorted(moved - blocks), [])
    yield same(
        "blocks that have learned", sorted({name.split(".")[2] for name in blocks}), ["0", "1"]
    )


def _others(
    found: Mapping[str, Tensor], known: Mapping[str, Tensor], at: str = "", told: str = ""
) -> set[str]:
    """The names of the tensors that are not those which are known under ``at`` and their name."""
    return {
        f"{told}{at}{name}"
        for name, tensor in found.items()
        if not tensor.equal(known[at + name].to(tensor))
    }


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
