"""Reports of the first training steps of a student."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.build_run import TaskDistillation
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import TrainingClock


@dataclass
class StepRecorder(Callback):
    """A callback that keeps the report of every step."""

    reports: list[StepReport] = field(default_factory=list[StepReport])

    def report_step(self, report: StepReport) -> None:
        self.reports.append(report)

    def make_reporter(self, seed: int, clock: TrainingClock) -> Sequence[Callback]:
        """Return this callback, as a factory of reporters."""
        return [self]


def first_step(
    student: TextModel,
    task: Task,
    examples: Examples,
    distillation: TaskDistillation | None,
    **settings: Any,
) -> StepReport:
    """Return the report of one step on all examples."""
    settings = {**settings, "batch_size": len(examples), "epochs": 1}
    return all_steps(student, task, examples, distillation, **settings)[0]


def all_steps(
    student: TextModel,
    task: Task,
    examples: Examples,
    distillation: TaskDistillation | None,
    **settings: Any,
) -> list[StepReport]:
    """Return the reports of all steps of a run, evaluated on its training examples."""
    recorder = StepRecorder()
    finetune(
        student,
        task,
        train=examples,
        dev=examples,
        distillation=distillation,
        make_reporter=recorder.make_reporter,
        **settings,
    )
    return recorder.reports


def same_weights(
    first: FineTunedModel | FineTuningResult, second: FineTunedModel | FineTuningResult
) -> bool:
    """Return whether two models have the same weights, bit for bit."""
    weights, others = (
        (model if isinstance(model, FineTunedModel) else model.model).task_model.state_dict()
        for model in (first, second)
    )
    return weights.keys() == others.keys() and all(weights[n].equal(t) for n, t in others.items())
