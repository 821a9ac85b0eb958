"""Compression to a goal: measure, plan, train, write, evaluate."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.compression.budget.candidates import WEIGHTS_FORMAT, CandidatePool, artefact_bytes
from bertwright.compression.budget.goal import Goal
from bertwright.compression.budget.planner import BudgetPlan, BudgetPlanner
from bertwright.compression.budget.shapes import full_shape
from bertwright.compression.compress import compress
from bertwright.compression.method import CompressionMethod
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, require_creatable, require_new_folder, write_text
from bertwright.interop.loading import load
from bertwright.recipes.loading import merge
from bertwright.runtime.markdown_report import markdown_table
from bertwright.tasks.adapters.quantization import Quantization
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.evaluation.bootstrap import paired_difference
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs import Prediction
from bertwright.timing.artefacts import Artefact, interleaved_seconds

Log = Callable[[str], None]

TRAINING_STEP_COST = 3
"""Cost of a training step, in forward passes."""

NUM_TIMED_EXAMPLES = 64
"""Number of examples used to estimate the training time."""

BATCHES_PER_ROUND, NUM_ROUNDS = 10, 5
"""Number of batches of each model per round, and number of rounds."""


@dataclass(frozen=True)
class BudgetRun:
    """A compression of a fine-tuned model to a goal.

    ``settings`` are fine-tuning settings for all stages of the method. ``work_folder`` stores the
    candidates and the student after each stage except the last; an interrupted run resumes from it.
    """

    model: FineTunedModel
    goal: Goal
    data: TaskData
    method: str
    log: Log
    settings: Mapping[str, Any]
    work_folder: Path | None = None

    def run(self, output: Path) -> dict[str, Any]:
        """Write the best model that is small and fast enough, and return the results.

        The results contain the goal, the measured candidates, the estimates, the plan, and the
        score, size and latency of both models. A model that loses too much is written as well, with
        ``is_met`` False.

        Raises UserError if no candidate is small and fast enough, for sequences longer than the
        model's maximum length, for invalid settings, and for a method that cannot be combined with
        a goal.
        """
        require_new_folder(output)
        if self.work_folder is not None:
            require_creatable(self.work_folder / "student")
        self._require_possible()
        task, train, dev = self.data.load_splits()
        with (
            nullcontext(self.work_folder) if self.work_folder else TemporaryDirectory() as work,
            TemporaryDirectory() as temporary,
        ):
            candidates = CandidatePool(self.model, self.goal, train, Path(work), self.log)
            planner = BudgetPlanner(
                self.model, self.goal, self._loaded_method, candidates, train, dev, self.log
            )
            plan = planner.plan()
            self._log_plan(plan, train)
            base = candidates.folder(full_shape(self.model), WEIGHTS_FORMAT)
            compressed = candidates.folder(plan.candidate.shape, plan.candidate.format)
            if plan.model is not None:
                student = compress(
                    self.model,
                    self.method,
                    TaskData(task, train=train, dev=dev),
                    student=plan.model,
                    work_folder=self.work_folder,
                    settings=self.settings,
                ).best.model
                compressed = Path(temporary) / "compressed"
                plan.candidate.format.write(student, train, compressed)
            result = {
                "goal": self.goal.text,
                "candidates": {
                    c.name: {"bytes": c.num_bytes, "milliseconds": c.milliseconds}
                    for c in candidates.measured
                },
                **planner.estimates(),
                "plan": plan.candidate.name,
                "method": None if plan.model is None else self.method,
                **self._evaluate(base, compressed, dev),
            }
            with atomic_folder(output) as folder:
                shutil.copytree(compressed, folder, dirs_exist_ok=True)
                write_text(folder / "budget.json", json.dumps(result, indent=1) + "\n")
        return result

    def _require_possible(self) -> None:
        """Raise UserError for problems that can be detected before anything is measured."""
        if "seeds" in self.settings:
            raise UserError("a goal needs a single model: leave seeds= out")
        configs, method = self._stage_configs, self._loaded_method
        if method.student is not None or method.sharing is not None:
            raise UserError(
                f"a goal needs a student made of the model itself, and {self.method} starts with "
                f"another: choose another method"
            )
        if any(isinstance(config.adaptation, Quantization) for config in configs):
            raise UserError(
                "with a goal, weights are quantized after training: choose a method and an "
                "adaptation without quantization, or leave --goal out"
            )
        chooses = any(stage.structured_pruning or stage.mixed_precision for stage in method.stages)
        if chooses or method.layer_selection == "important":
            raise UserError(
                f"with a goal, the plan selects layers, heads and units, and {self.method} selects "
                f"them itself: choose another method"
            )
        max_length = self.model.task_model.encoder.max_length
        has_latency = self.goal.max_milliseconds is not None
        if has_latency and max_length is not None and self.goal.sequence_length > max_length:
            raise UserError(
                f"--goal latency: the model reads sequences of at most {max_length} tokens, not "
                f"{self.goal.sequence_length}: choose shorter ones"
            )

    def _log_plan(self, plan: BudgetPlan, train: Examples) -> None:
        """Log the plan and its estimated time."""
        self.log(f"plan: {plan.candidate.name}")
        if plan.model is None:
            self.log(f"no training needed, so {self.method} is not used")
            return
        minutes = self._estimated_seconds(plan.model, train) / 60
        self.log(f"{self.method} trains the pruned model: about {minutes:.1f} minutes")

    def _estimated_seconds(self, student: FineTunedModel, train: Examples) -> float:
        """Estimate the training time in seconds.

        A stage takes its epochs of the student and one pass of the teacher.
        """
        epochs = sum(config.epochs for config in self._stage_configs)
        student_seconds, teacher_seconds = (
            _seconds_per_example(model, train) for model in (student, self.model)
        )
        student_seconds *= TRAINING_STEP_COST * epochs
        return len(train) * (student_seconds + len(self._stage_configs) * teacher_seconds)

    @cached_property
    def _loaded_method(self) -> CompressionMethod:
        return CompressionMethod.load(self.method)

    @cached_property
    def _stage_configs(self) -> list[FineTuningConfig]:
        return [
            FineTuningConfig.from_settings(merge(stage.settings, self.settings))
            for stage in self._loaded_method.stages
        ]

    def _evaluate(self, base: Path, compressed: Path, dev: Examples) -> dict[str, Any]:
        """Evaluate the original and the compressed model, loaded from their folders."""
        models: dict[str, dict[str, float]] = {}
        predictions: list[Sequence[Prediction]] = []
        folders = base, compressed
        length = min(
            self.goal.sequence_length,
            self.model.task_model.encoder.max_length or self.goal.sequence_length,
        )
        shape = {"batch_size": self.goal.batch_size, "max_length": length, "threads": None}
        seconds = interleaved_seconds(
            [Artefact(folder) for folder in folders], shape, BATCHES_PER_ROUND, NUM_ROUNDS
        )
        for name, folder, times in zip(("base", "compressed"), folders, seconds, strict=True):
            model = load(folder)
            assert isinstance(model, FineTunedModel)
            predictions.append(model.predict(dev))
            models[name] = {
                "score": evaluate(model, dev)["score"],
                "bytes": artefact_bytes(folder),
                "milliseconds": 1000 * median(times),
            }
        student = models["compressed"]
        lost = models["base"]["score"] - student["score"]
        unmet = self.goal.unmet(student["bytes"], student["milliseconds"], lost)
        first, second = predictions
        interval = paired_difference(self.model.task, dev, first, second)
        has_interval = isfinite(interval.low)
        return {
            **models,
            "lost_points": 100 * lost,
            "lost_points_interval": (
                [100 * interval.low, 100 * interval.high] if has_interval else None
            ),
            "examples": len(dev),
            "is_met": not unmet,
            "unmet": unmet,
        }


def _seconds_per_example(model: FineTunedModel, examples: Examples) -> float:
    timed = examples[:NUM_TIMED_EXAMPLES]
    model.predict(timed)
    start = time.perf_counter()
    model.predict(timed)
    return (time.perf_counter() - start) / len(timed)


COLUMNS = {
    "model": "model",
    "score": "score",
    "lost_points": "points lost",
    "interval": "95 % interval",
    "examples": "examples",
    "megabytes": "MB",
    "smaller": "times smaller",
    "milliseconds": "ms",
    "faster": "times faster",
}
"""Column titles by key."""


def report_table(result: Mapping[str, Any]) -> list[str]:
    """Return a table of both models, given the result of :meth:`BudgetRun.run`."""
    base, lines = result["base"], list[dict[str, Any]]()
    for name, model in (("base", base), (result["plan"], result["compressed"])):
        lines.append(
            {
                "model": name,
                "score": model["score"],
                "lost_points": 100 * (base["score"] - model["score"]),
                "interval": None if model is base else result.get("lost_points_interval"),
                "examples": result.get("examples"),
                "megabytes": model["bytes"] / 1e6,
                "smaller": base["bytes"] / model["bytes"],
                "milliseconds": model["milliseconds"],
                "faster": base["milliseconds"] / model["milliseconds"],
            }
        )
    return markdown_table(COLUMNS, lines)
