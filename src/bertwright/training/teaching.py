"""What pre-training learns beside what its recipe asks: from a teacher, whatever it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from bertwright.examples.batches import Batch
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.objective import Loss, Objective
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place

TEACHING = "teaching."
"""What stands before the names of the parameters that a teacher trains beside a student's."""


class Teaching(nn.Module):
    """What teachers have in common. The parameters are trained with the student, and are no part of
    what is saved of it."""

    def begin(self, seed: int) -> None:
        """Draw what it trains anew, behind everything else that begins; freeze what stays."""

    def weights(self, place: Place) -> dict[str, float]:
        """Of the losses in the total; a loss that is not named weighs as without a teacher."""
        return {}


@dataclass(frozen=True)
class PieceLesson:
    """What the student made of a micro-batch of text.

    Attributes:
        objectives: those that ask, by name.
        values: of its encoder, by the names that were asked for.
        place: of the step in the run.
    """

    batch: TensorBatch
    objectives: Mapping[str, Objective]
    values: Mapping[str, Tensor]
    place: Place


class PieceTeaching(Teaching):
    """The losses of a teacher in pre-training.

    Attributes:
        about: what tells it from another teacher: a run goes on with the one it began with.
    """

    about: str = ""

    def sites(self, place: Place) -> Sequence[str]:
        """The values of the student's encoder that it listens to."""
        return ()

    def share(self, place: Place) -> float:
        """What the weights of the recipe's own questions are multiplied with."""
        return 1.0

    def rates(self, place: Place) -> Sequence[float] | None:
        """What the learning rates of the student are multiplied with by level: before the blocks,
        every block, behind them; None where all are 1."""
        return None

    def prepared(self, step: StepBatch[Batch], place: Place) -> StepBatch[Batch]:
        """The batch of a step with what the losses of the teacher are divided by, by their names,
        and with rows of its own where it reads any."""
        return step

    def losses(self, lesson: PieceLesson) -> dict[str, Loss]:
        """Of a micro-batch, by name."""
        return {}


class PieceTeacher(Protocol):
    """Who teaches in pre-training, before it is known whom."""

    def teaching(self, student: Model, data: Data) -> PieceTeaching:
        """The losses for a student that learns from such data; UserError where it cannot teach
        it."""
        ...
