"""What a step of fine-tuning learns beside the labels: from a teacher, whatever it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from bertwright.objectives.objective import Loss
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.parts import Part
from bertwright.tasks.seen_pieces import SeenPieces
from bertwright.tasks.task_batches import TaskBatch
from bertwright.tasks.task_model import Adapted
from bertwright.training.procedure import Procedure
from bertwright.training.teaching import Teaching


@dataclass(frozen=True)
class Lesson:
    """What the student made of a micro-batch.

    Attributes:
        outputs: (M, K) float32 of its head, fillers left out.
        values: of its encoder, by the names that were asked for.
        progress: of the training, from 0 to 1.
    """

    batch: TaskBatch
    outputs: Tensor
    values: Mapping[str, Tensor]
    progress: float


class TaskTeaching(Teaching):
    """The losses of a teacher in fine-tuning.

    Attributes:
        sites: the values of the student's encoder that it listens to.
        procedures: what it does within a step.
        judged: whether how well the student answers behind an epoch says how good it is; else it
            has not learned to answer yet, and the last epoch is kept.
    """

    sites: Sequence[str] = ()
    procedures: Sequence[Procedure] = ()
    judged: bool = True

    def counts(self, rows: Sequence[TaskRow], count: float) -> dict[str, float]:
        """What the losses of a step are divided by, by their names; ``count`` is that of the
        labels."""
        return {}

    def losses(self, lesson: Lesson) -> dict[str, Loss]:
        """Of a micro-batch, by name."""
        return {}


class Teacher(Protocol):
    """Who teaches, before it is known whom."""

    def teaching(
        self, student: Adapted, parts: Sequence[Part], seen: SeenPieces | None
    ) -> TaskTeaching:
        """The losses for a student of these parts, whose pieces are numbered by those that are
        ``seen``; UserError where it cannot teach it."""
        ...
