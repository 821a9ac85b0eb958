"""Worker processes that time fine-tuning steps of both sides in interleaved rounds."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.embedding.compare import checkpoint_folder
from benchmarks.finetuning import trainer as peer
from benchmarks.finetuning.plan import FineTuningPlan, finetuning_settings
from benchmarks.pretraining.bertwright_worker import StepTimerCallback
from bertwright.interop.loading import load
from bertwright.runtime.process import configure_process, default_device
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.finetune import run_seeds
from bertwright.timing.interleaved import StepTimer, time_processes

NUM_REPEATS = 100
"""Repetitions of the training set; the timing ends earlier."""

SIDES = ("ours", "default", "best")


def compare_epoch_times(plan_file: Path, task: str, num_rounds: int) -> dict[str, float]:
    """Return the seconds of an epoch, and the speed-ups over the Trainer.

    The means are over all steps after the first round, because steps differ in length.
    """
    plan = FineTuningPlan.load(plan_file)
    config = plan.tasks[task]
    part = config.build_part(load(plan.encoder or checkpoint_folder()))
    epoch_steps = -(-len(part.items) // config.batch_size)
    settings = {"plan": str(plan_file), "task": task}
    programs = [(__name__, {**settings, "side": side}) for side in SIDES]
    seconds = time_processes(programs, min(config.timed_steps, epoch_steps), num_rounds)
    means = dict(zip(SIDES, map(fmean, seconds), strict=True))
    return {
        "epoch_seconds": epoch_steps * means["ours"],
        "against_default": means["default"] / means["ours"],
        "against_best": means["best"] / means["ours"],
    }


def repeat_part(part: EncodedTask, num_repeats: int) -> EncodedTask:
    """Return the training set repeated, so that no evaluation interrupts the steps."""
    size = len(part.sequences)
    return replace(
        part,
        sequences=list(part.sequences) * num_repeats,
        items=[
            range(item.start + n * size, item.stop + n * size)
            for n in range(num_repeats)
            for item in part.items
        ],
        targets=list(part.targets) * num_repeats,
    )


def run_side(plan: FineTuningPlan, task: str, side: str, timer: StepTimer) -> None:
    """Train until the process is stopped, at the pace of the timer."""
    folder, config = plan.encoder or checkpoint_folder(), plan.tasks[task]
    model = load(folder)
    part = config.build_part(model)
    if side != "ours":
        peer.train_stock_model(
            plan,
            config,
            part,
            folder,
            0,
            peer.fastest_settings() if side == "best" else peer.DEFAULT_SETTINGS,
            before_step=timer.before_step,
            num_epochs=NUM_REPEATS,
        )
        return
    settings = finetuning_settings(plan, config, part.task.output_type).model_copy(
        update={"epochs": 1, "compile": True}
    )
    examples = [(part.task, part.train, part.train[:2])]
    run = build_run(model, examples, settings)
    tasks = [repeat_part(encoded_task, NUM_REPEATS) for encoded_task in run.encoded_tasks]
    run_seeds(replace(run, encoded_tasks=tasks, callbacks=[StepTimerCallback(timer)]))


def main() -> None:
    """Run a worker: ``python -m benchmarks.finetuning.worker '{"plan": ...}'``."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    if settings["side"] != "default":
        configure_process()
    timer = StepTimer.from_standard_streams(default_device().type)
    timer.has_mixed_steps = True
    run_side(FineTuningPlan.load(Path(settings["plan"])), settings["task"], settings["side"], timer)


if __name__ == "__main__":
    main()
