"""A teacher and a student with a smaller vocabulary learn together (Zhao et al. 2019, 2021).

The teacher reads the rows of its student with some words in its own pieces and some in those of the
student, and fills what is hidden there: so the vectors of both come to mean the same.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.axes import Settings
from bertwright.compression.lessons.suiting import identity, what_hides
from bertwright.compression.lessons.two_tables import TwoVocabularyModel
from bertwright.compression.lessons.variables import (
    SharedProjections,
    Variables,
    variables_of,
)
from bertwright.errors import UserError
from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Rows
from bertwright.examples.mixing import Mixing
from bertwright.examples.vocabulary import Vocabulary
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Asking, Loss
from bertwright.randomness import Draw
from bertwright.schedules import Constant, Value
from bertwright.text.recutting import Recutting
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place
from bertwright.training.teaching import PieceLesson, PieceTeaching

MIXED, VARIABLES = "mixed-words", "variables"
"""The names of the losses."""


class Together(Settings):
    """What a teacher learns beside its student, and what leads them to each other.

    Attributes:
        words: the share of words that the teacher reads in the pieces of its student.
        table: the vectors of these: its ``own``, or those of its ``student``, which they train,
            led through a linear map.
        own: multiplies the weights of what the recipe of the student asks.
        mixed: the weight of what is hidden from the teacher.
        variables: the weight of how far the variables of the two are from each other.
    """

    words: float = Field(default=0.5, ge=0.0, le=1.0)
    table: Literal["own", "student"] = "own"
    own: Value = Constant(value=1.0)
    mixed: Value = Constant(value=1.0)
    variables: Value | None = None


@dataclass(frozen=True)
class LearningTeacher:
    """A teacher that learns the pieces of its student."""

    teacher: TextModel
    settings: Together

    def teaching(self, student: Model, data: Data) -> PieceTeaching:
        """The losses for a student.

        Errors: UserError where words cannot be cut in both ways, where the two do not fill hidden
        places, or not of text as it stands.
        """
        asked = what_hides(student, self.teacher.model)
        others = {n: o for n, o in student.recipe.objectives.items() if n != asked}
        if odd := [n for n, o in others.items() if o.hides or o.disturbs or o.rearranges]:
            raise UserError(
                f"rows of two vocabularies are made of text as it stands, and objectives.{odd[0]} "
                f"changes it: leave it out"
            )
        if student.recipe.assembly.directions > 1:
            raise UserError("rows of two vocabularies are read forward: choose another assembly")
        recut = Recutting(data.tokenizer, self.teacher.tokenizer)
        mixing = Mixing(
            self.settings.words,
            recut,
            self.teacher.model.vocabulary_size,
            self.teacher.tokenizer.specials,
            data.tokenizer.specials,
        )
        return _LearningTogether(self, student, asked, mixing)


class _LearningTogether(PieceTeaching):
    """The losses of a teacher that learns, and of its variables beside its student's."""

    def __init__(
        self, learning: LearningTeacher, student: Model, asked: str, mixing: Mixing
    ) -> None:
        super().__init__()
        settings, known = learning.settings, learning.teacher
        self.about = f"{identity(known.model)} {settings.model_dump_json()}"
        self._settings, self._asked, self._mixing = settings, asked, mixing
        self._recipe, mapped = student.recipe, settings.table == "student"
        self.teacher = TwoVocabularyModel(known.model, student, mapped)
        self.projections = None
        if settings.variables is not None:
            self.projections = SharedProjections(*_variables(student, self.teacher))
        own, first = known.tokenizer, known.model.vocabulary_size
        missing = own.missing | frozenset(range(own.size, first))
        size = first + student.vocabulary_size
        self._vocabulary = Vocabulary(size, own.specials, missing=missing)

    def begin(self, seed: int) -> None:
        self.teacher.begin(seed)
        if self.projections is not None:
            self.projections.begin(seed)

    def share(self, place: Place) -> float:
        return self._settings.own.at(place.progress)

    def weights(self, place: Place) -> dict[str, float]:
        named = {MIXED: self._settings.mixed, VARIABLES: self._settings.variables}
        return {n: value.at(place.progress) for n, value in named.items() if value is not None}

    def prepared(self, step: StepBatch[Batch], place: Place) -> StepBatch[Batch]:
        batches = [replace(own, beside=self._mixed(own, place)) for own in step.micro_batches]
        questions = [own.beside.questions[self._asked] for own in batches if own.beside is not None]
        counts = {MIXED: sum(float(question.weight.sum()) for question in questions)}
        if self.projections is not None:
            # Each micro-batch says the same of them.
            counts[VARIABLES] = float(len(batches))
        return replace(step, micro_batches=batches, counts={**step.counts, **counts})

    def losses(self, lesson: PieceLesson) -> dict[str, Loss]:
        batch, objective = lesson.batch.beside, lesson.objectives[self._asked]
        assert batch is not None, "prepared by this teacher"
        assert isinstance(objective, Masked), "what hides is masked"
        asked = batch.questions[self._asked]
        found = {MIXED: self.teacher.loss(batch.pieces, batch.coordinates, asked, objective)}
        if self.projections is not None:
            apart = self.projections()
            found[VARIABLES] = Loss(apart, 1.0, apart.new_zeros(()))
        return found

    def _mixed(self, batch: Batch, place: Place) -> Batch:
        """The text of a micro-batch in both vocabularies, with as much of it hidden."""
        recipe, first = self._recipe, batch.first_row
        draw = Draw(recipe.seed, 0, place.rows + first + np.arange(len(batch.pieces)))
        stood = as_it_stood(batch, self._asked)
        spelled = np.isin(stood.pieces, list(self._mixing.reserved))
        rows = replace(stood, special=stood.special | spelled)
        rows = self._mixing(rows, draw.named(MIXED))
        objective = recipe.objectives_of(place.phase)[self._asked]
        by_phase = recipe.phases[place.phase].objectives is not None
        progress = place.phase_progress if by_phase else place.progress
        shown, question = objective.ask(rows, Asking(draw, self._vocabulary, progress))
        number = int(shown.real.sum())
        return Batch(shown.pieces, shown.coordinates, {self._asked: question}, number, first)


def as_it_stood(batch: Batch, asked: str) -> Rows:
    """The rows of a batch before a question hid some of it."""
    question, pieces = batch.questions[asked], batch.pieces.copy()
    pieces.ravel()[question.where] = question.target
    word = batch.coordinates.word
    special = np.zeros(pieces.shape, np.bool_) if word is None else word < 0
    return Rows(pieces, batch.coordinates, special)


def _variables(student: Model, teacher: TwoVocabularyModel) -> tuple[Variables, Variables]:
    """Those of both that mean the same: of the student all but its heads, of the teacher what is
    for the student's pieces."""
    pieces = "encoder.embeddings.pieces."
    own, theirs = (
        {n: v for n, v in known.items() if not n.startswith(pieces)}
        for known in (
            variables_of(encoder=student.encoder, output=student.output),
            variables_of(encoder=teacher.encoder, output=teacher.second_output),
        )
    )
    if teacher.tables.own is not None:
        own[pieces], theirs[pieces] = (student.embedding, 1), (teacher.tables.own.weight, 1)
    return own, theirs
