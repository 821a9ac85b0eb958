"""A fine-tuned model that teaches a smaller one the same task (Hinton et al. 2015)."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertwright.compression.signals import Comparisons, Heard, Signal, Sizes
from bertwright.compression.transfer.answered import AnsweredTexts
from bertwright.errors import UserError
from bertwright.objectives.objective import Loss
from bertwright.schedules import Schedule
from bertwright.tasks.distant import DistantPart, rows_of
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.parts import Part
from bertwright.tasks.seen_pieces import SeenPieces
from bertwright.tasks.task_batches import ANSWER, TaskBatch
from bertwright.tasks.task_model import Adapted
from bertwright.tasks.teaching import Lesson, TaskTeaching
from bertwright.training.clock import Place


@dataclass(frozen=True)
class Distillation:
    """A teacher, and what of it is heard; ``labels`` weighs the loss of the labels beside it."""

    teacher: FineTuned
    signals: Sequence[Signal]
    labels: Schedule

    def teaching(
        self, student: Adapted, parts: Sequence[Part], seen: SeenPieces | None
    ) -> TaskTeaching:
        """The losses for a student.

        Errors: UserError where the teacher knows another task or other labels, where the two cut
        examples into unlike rows, and where values inside are compared of unlike pieces.
        """
        if len(parts) > 1:
            raise UserError("a teacher knows one task: distil tasks one by one")
        (part,) = parts
        encoders = student.recipe.encoder, self.teacher.net.recipe.encoder
        comparisons = Comparisons(self.signals, *encoders)
        taught, sites = taught_outputs(self.teacher, part), comparisons.other_sites
        inside = _Inside.of(self.teacher, part, seen, sites) if sites else None
        return _Distilling(comparisons, self.labels, part, taught, inside)


class _Distilling(TaskTeaching):
    """The losses of a teacher; ``taught`` is what it answers to every row, ``inside`` reads what
    else is heard of it."""

    def __init__(
        self,
        comparisons: Comparisons,
        labels: Schedule,
        part: Part,
        taught: Sequence[Tensor],
        inside: "_Inside | None",
    ) -> None:
        super().__init__()
        self.comparisons, self._labels = comparisons, labels
        self._part, self._taught, self._inside = part, taught, inside
        self.sites = comparisons.sites
        self.judged = comparisons.hears_outputs or labels.at(1.0) > 0

    def begin(self, seed: int) -> None:
        self.comparisons.begin(seed)

    def counts(self, rows: Sequence[TaskRow], count: float) -> dict[str, float]:
        return self.comparisons.counts(_sizes(rows, count))

    def weights(self, place: Place) -> dict[str, float]:
        labels = {ANSWER: self._labels.at(place.progress)}
        return labels | self.comparisons.weights(place.progress)

    def losses(self, lesson: Lesson) -> dict[str, Loss]:
        batch, outputs = lesson.batch, lesson.outputs
        numbers = batch.numbers[: batch.num_rows]
        document = batch.coordinates.document
        assert document is not None, "batches of tasks say which places are real"
        real = document >= 0
        real[batch.num_rows :] = False
        taught = torch.cat([self._taught[number] for number in numbers]).to(outputs.device)
        answering, sizes = self._part.answering, batch.item_sizes
        heard = Heard(
            answering.numbers(outputs, sizes),
            answering.numbers(taught, sizes),
            answering.logits(outputs, sizes),
            answering.logits(taught, sizes),
            lesson.values,
            {} if self._inside is None else self._inside(batch),
            real,
            lesson.progress,
        )
        rows = [self._part.rows[number] for number in numbers]
        return self.comparisons.losses(heard, _sizes(rows, float(len(batch.targets))))


def _sizes(rows: Sequence[TaskRow], asked: float) -> Sizes:
    return Sizes(float(len(rows)), float(sum(len(row.pieces) for row in rows)), asked)


class _Inside:
    """Values inside a teacher, for the rows of a step."""

    def __init__(self, teacher: FineTuned, seen: SeenPieces | None, sites: Sequence[str]) -> None:
        self._encoder, self._seen, self._sites = teacher.net.encoder, seen, sites
        if teacher.precision == "bf16":
            self._encoder = deepcopy(self._encoder).to(torch.bfloat16)

    @staticmethod
    def of(
        teacher: FineTuned, part: Part, seen: SeenPieces | None, sites: Sequence[str]
    ) -> "_Inside":
        """Of a teacher that reads the rows of a part as its student does."""
        own = rows_of(teacher.answering, teacher.maker, part.train)
        if any(
            (a.pieces, a.segments) != (b.pieces, b.segments)
            for a, b in zip(own, part.rows, strict=True)
        ):
            raise UserError(
                "the teacher reads texts as other pieces than its student: nothing inside the two "
                "can be compared, only outputs"
            )
        return _Inside(teacher, seen, sites)

    @torch.no_grad()
    def __call__(self, batch: TaskBatch) -> Mapping[str, Tensor]:
        pieces = batch.pieces if self._seen is None else self._seen.kept[batch.pieces]
        with self._encoder.record(*self._sites) as values:
            self._encoder(pieces, batch.coordinates)
        return values


def taught_outputs(teacher: FineTuned, part: Part) -> Sequence[Tensor]:
    """What a teacher's head gives for each row of a part, (k, K) float32, as a head in training
    gives it. What it has answered already it is not asked again.

    Errors: UserError where it knows other labels, or cuts examples into other rows.
    """
    task, own = part.task, teacher.task
    if (type(task.answer), tuple(task.labels)) != (type(own.answer), tuple(own.labels)):
        raise UserError(
            f"the teacher was fine-tuned for {own.name} ({', '.join(own.labels) or 'no labels'}), "
            f"its student learns {task.name} ({', '.join(task.labels) or 'no labels'}): both need "
            f"the same labels"
        )
    unlike = UserError(
        f"the teacher cuts long examples into other rows than its student: set length to "
        f"{teacher.maker.length}, as it was"
    )
    if isinstance(part, DistantPart):
        assert isinstance(part.train, AnsweredTexts), "what is on the disk was answered there"
        assert part.train.teacher is teacher, "by this teacher"
        if (part.train.num_outputs() != np.array(part.rows.num_answers)).any():
            raise unlike
        return part.train.taught(part)
    rows = teacher.answering.rows(teacher.maker, part.train)
    sizes = ([(r.example, part.answering.num_answers(r)) for r in of] for of in (rows, part.rows))
    if next(sizes) != next(sizes):
        raise unlike
    found = (torch.from_numpy(output).float() for output in teacher.outputs(rows))
    return [part.answering.as_trained(output) for output in found]
