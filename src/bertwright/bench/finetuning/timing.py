"""An epoch of either side, timed in processes that take turns."""

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.finetuning import peer
from bertwright.bench.finetuning.ours import finetuning_of
from bertwright.bench.finetuning.plan import Plan
from bertwright.bench.ours import Laps
from bertwright.bench.turns import Contestant, Turns
from bertwright.interop.loading import load
from bertwright.machine import tune_allocator
from bertwright.tasks.finetuning import prepare_training, unwatched, with_every_seed

FOREVER = 10_000
"""Epochs; the turns end before."""

SIDES = ("ours", "default", "best")


def times(plan_file: Path, task: str, rounds: int) -> dict[str, float]:
    """Median seconds of an epoch of each side, and how many times ours is faster."""
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    with ExitStack() as stack:
        contestants = {
            side: stack.enter_context(
                Contestant(
                    __name__,
                    {"plan": str(plan_file), "task": task, "side": side},
                    dict(os.environ),
                )
            )
            for side in SIDES
        }
        steps = _steps(plan_file, task)
        for contestant in contestants.values():
            contestant.seconds_per_step(steps)
        for _ in range(rounds):
            for side, contestant in contestants.items():
                seconds[side].append(steps * contestant.seconds_per_step(steps))
    ratios = {
        side: median(a / b for a, b in zip(seconds[side], seconds["ours"], strict=True))
        for side in SIDES[1:]
    }
    return {
        "epoch_seconds": median(seconds["ours"]),
        "against_default": ratios["default"],
        "against_best": ratios["best"],
    }


def _steps(plan_file: Path, task: str) -> int:
    """The steps of an epoch, of either side."""
    plan = Plan.load(plan_file)
    compared = plan.tasks[task]
    part = compared.part(load(plan.encoder or checkpoint_folder()), compared.timed)
    return -(-len(part.items) // compared.batch)


def contend(plan: Plan, task: str, side: str, turns: Turns) -> None:
    """Train without end, at the pace of the turns."""
    folder, compared = plan.encoder or checkpoint_folder(), plan.tasks[task]
    model = load(folder)
    part = compared.part(model, compared.timed)
    if side != "ours":
        peer.trained(
            plan,
            compared,
            part,
            folder,
            0,
            peer.BEST if side == "best" else peer.AS_IT_IS,
            before_step=turns.before_step,
            epochs=FOREVER,
        )
        return
    chosen = finetuning_of(plan, compared, part.task.answer).model_copy(
        update={"epochs": FOREVER, "compile": True}
    )
    dev = part.train[:2]
    given = [(part.task, part.train, dev)]
    training = prepare_training(model, given, chosen, unwatched, None)
    with_every_seed(replace(training, procedures=[Laps(turns)]), chosen)


def main() -> None:
    """Be a contestant: ``python -m bertwright.bench.finetuning.timing '{"plan": ...}'``."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    if settings["side"] != "default":
        tune_allocator()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    turns = Turns.over_standard_streams(device)
    turns.mixed = True
    contend(Plan.load(Path(settings["plan"])), settings["task"], settings["side"], turns)


if __name__ == "__main__":
    main()
