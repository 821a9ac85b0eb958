"""Steps of either side, timed in processes that take turns."""

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.finetuning import peer
from bertwright.bench.finetuning.ours import finetuning_of
from bertwright.bench.finetuning.plan import Plan
from bertwright.bench.ours import Laps
from bertwright.bench.turns import Contestant, Turns
from bertwright.interop.loading import load
from bertwright.machine.process import tune_process, usual_device
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.finetuning import with_every_seed
from bertwright.tasks.parts import Part
from bertwright.tasks.task_training import unwatched

FOREVER = 100
"""How often all rows come again; the turns end before."""

SIDES = ("ours", "default", "best")


def times(plan_file: Path, task: str, rounds: int) -> dict[str, float]:
    """Seconds of an epoch of ours, and how many times those of the others are longer: of all steps
    that were taken after a first turn, since steps differ in length."""
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
        plan = Plan.load(plan_file)
        compared = plan.tasks[task]
        part = compared.part(load(plan.encoder or checkpoint_folder()))
        of_epoch = -(-len(part.items) // compared.batch)
        steps = min(compared.timed, of_epoch)
        for contestant in contestants.values():
            contestant.seconds_per_step(steps)
        for _ in range(rounds):
            for side, contestant in contestants.items():
                seconds[side].append(contestant.seconds_per_step(steps))
    means = {side: fmean(of) for side, of in seconds.items()}
    return {
        "epoch_seconds": of_epoch * means["ours"],
        "against_default": means["default"] / means["ours"],
        "against_best": means["best"] / means["ours"],
    }


def repeated(part: Part, times: int) -> Part:
    """So many times the same rows: an epoch that nothing interrupts to judge it, as nothing does
    the other side's."""
    size = len(part.rows)
    return replace(
        part,
        rows=list(part.rows) * times,
        items=[
            range(item.start + n * size, item.stop + n * size)
            for n in range(times)
            for item in part.items
        ],
        targets=list(part.targets) * times,
    )


def contend(plan: Plan, task: str, side: str, turns: Turns) -> None:
    """Train without end, at the pace of the turns."""
    folder, compared = plan.encoder or checkpoint_folder(), plan.tasks[task]
    model = load(folder)
    part = compared.part(model)
    if side != "ours":
        peer.trained(
            plan,
            compared,
            part,
            folder,
            0,
            peer.best() if side == "best" else peer.AS_IT_IS,
            before_step=turns.before_step,
            epochs=FOREVER,
        )
        return
    chosen = finetuning_of(plan, compared, part.task.answer).model_copy(
        update={"epochs": 1, "compile": True}
    )
    dev = part.train[:2]
    given = [(part.task, part.train, dev)]
    training = prepare_training(model, given, chosen, unwatched, None)
    parts = [repeated(own, FOREVER) for own in training.parts]
    with_every_seed(replace(training, parts=parts, procedures=[Laps(turns)]), chosen)


def main() -> None:
    """Be a contestant: ``python -m bertwright.bench.finetuning.timing '{"plan": ...}'``."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    if settings["side"] != "default":
        tune_process()
    turns = Turns.over_standard_streams(usual_device().type)
    turns.mixed = True
    contend(Plan.load(Path(settings["plan"])), settings["task"], settings["side"], turns)


if __name__ == "__main__":
    main()
