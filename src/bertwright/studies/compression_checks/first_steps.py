"""What a student has to learn before it has learned anything: the losses of its first step."""

from dataclasses import dataclass, field
from typing import Any

from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.tasks.teaching import Teacher
from bertwright.training.clock import Clock
from bertwright.training.reporting import Reporter, StepReport


@dataclass
class Steps(Reporter):
    """Keeps what is told of every step."""

    reports: list[StepReport] = field(default_factory=list[StepReport])

    def step(self, report: StepReport) -> None:
        self.reports.append(report)

    def watch(self, seed: int, clock: Clock) -> Reporter:
        """What follows a run."""
        return self


def first_step(
    student: TextModel, task: Task, examples: Examples, teacher: Teacher | None, **settings: Any
) -> StepReport:
    """Of all examples together."""
    at_once = {**settings, "batch": len(examples), "epochs": 1}
    return steps_of(student, task, examples, teacher, **at_once)[0]


def steps_of(
    student: TextModel, task: Task, examples: Examples, teacher: Teacher | None, **settings: Any
) -> list[StepReport]:
    """Of a whole run, which is judged by the examples that it learns from."""
    steps = Steps()
    finetune(
        student,
        task,
        train=examples,
        dev=examples,
        teacher=teacher,
        watch=steps.watch,
        **settings,
    )
    return steps.reports


def same_weights(first: FineTuned | FineTuneResult, second: FineTuned | FineTuneResult) -> bool:
    """Whether two models are the same, bit for bit."""
    own, others = (
        (each if isinstance(each, FineTuned) else each.model).net.state_dict()
        for each in (first, second)
    )
    return own.keys() == others.keys() and all(own[n].equal(t) for n, t in others.items())
