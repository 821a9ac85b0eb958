"""The batches that a recipe draws from a data set: each a pure function of its place in the run.

Rows are taken in an order that is new in every epoch, by a permutation that is evaluated row by
row. What is hidden in a row depends on the seed, the epoch and the row alone. So there is nothing
to save, and neither micro-batches nor the number of processes change what is learned from.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.assembly import MixedRows
from bertwright.examples.batches import Ask, Batch, make_batch
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives.hiding import Hiding
from bertwright.objectives.objective import Asking, Objective
from bertwright.objectives.turns import turn_at
from bertwright.randomness import Draw, Permutation, key, round_by_round
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place
from bertwright.training.distributed import ALONE, Processes
from bertwright.training.row_sources import RowSources

LOOKED_AT, LOOKED_AT_ONCE = 2048, 64
"""Sequences in which an objective must have a target."""

BATCH_STAGES = 8
"""A batch that grows has so many sizes on the way: each number of rows is compiled anew."""


class RecipeBatches:
    """The batches that a recipe draws from a data set.

    The rows of this process are cut into equal micro-batches of at most the recipe's tokens.
    """

    def __init__(self, recipe: Recipe, data: Data, processes: Processes = ALONE) -> None:
        self._recipe = recipe
        self._vocabulary = Vocabulary.of(data.tokenizer, data.piece_counts)
        self._processes = processes
        phases = range(len(recipe.phases))
        self._objectives = [recipe.objectives_of(phase) for phase in phases]
        self._turns = [recipe.turns_of(phase) for phase in phases]
        self._sources = RowSources(recipe, data, "train", recipe.seed)

    def plan(self) -> None:
        """Plan the sequences of every phase and mask its first one, so that what the data lack is
        said before anything is trained.

        Errors: UserError for what they lack, and for an objective that has no target in them.
        """
        for phase, turns in enumerate(self._turns):
            for turn in turns:
                place = Place(0, 0.0, phase)
                first = self._rows(place, turn.objectives, np.arange(1))
                self._require_targets(place, turn.objectives, first)

    def _require_targets(
        self, place: Place, objectives: Mapping[str, Objective], batch: Batch
    ) -> None:
        """UserError for an objective without a target in a batch and in sequences from all over
        the data."""
        number = self.rows_in_epoch(place.phase, objectives)
        some = np.unique(np.linspace(0, number - 1, LOOKED_AT).astype(np.int64))
        idle = set(objectives)
        for part in (None, *np.split(some, range(LOOKED_AT_ONCE, len(some), LOOKED_AT_ONCE))):
            if part is not None:
                batch = self.asked(place, objectives, part, np.zeros_like(part))
            idle = {name for name in idle if not batch.questions[name].weight.any()}
            if not idle:
                return
        raise UserError(
            f"objectives.{min(idle)} has no target in {len(some):,} sequences of the data: nothing "
            f"would be learned; prepare other text, or remove the objective"
        )

    def __call__(self, place: Place) -> StepBatch[Batch]:
        """The batch of a step."""
        length = self._recipe.assembly_of(place.phase).length
        num_rows = self.num_rows(place)
        mine = self._processes.part_of(num_rows)
        share = mine.stop - mine.start
        parts = max(1, -(-share * length // max(self._recipe.micro_batch_tokens, length)))
        bounds = [mine.start + share * part // parts for part in range(parts + 1)]
        asked = turn_at(self._turns[place.phase], self._recipe.seed, place.step).objectives
        batches = [
            self._rows(place, asked, np.arange(start, stop)) for start, stop in pairwise(bounds)
        ]
        counts = {
            name: sum(float(batch.questions[name].weight.sum()) for batch in batches)
            for name in asked
        }
        hidden = {
            name: _sum(batch.hidden(name) for batch in batches)
            for name, objective in asked.items()
            if objective.hides
        }
        return StepBatch(batches, counts, num_rows, sum(b.num_tokens for b in batches), hidden)

    def num_rows(self, place: Place) -> int:
        """Rows of all processes in a step: the places that the recipe asks for, padding included,
        in whole rows, as many in every direction."""
        schedule = self._recipe.batch_tokens
        lowest, highest = schedule.extremes()
        step = (highest - lowest) / (BATCH_STAGES - 1)
        stage = round((schedule.at(place.progress) - lowest) / step) if step else 0
        tokens = (lowest + stage * step) * self._recipe.phases[place.phase].batch
        assembly = self._recipe.assembly_of(place.phase)
        rows = max(round(tokens / assembly.length), self._processes.world)
        return -(-rows // assembly.directions) * assembly.directions

    def weights(self, place: Place) -> dict[str, float]:
        """The weights of the questions at a place."""
        progress = self._progress(place)
        asked = self._objectives[place.phase].items()
        return {name: objective.weight.at(progress) for name, objective in asked}

    def _progress(self, place: Place) -> float:
        """What the schedules of objectives follow: the phase, where the phase states objectives."""
        own = self._recipe.phases[place.phase].objectives is not None
        return place.phase_progress if own else place.progress

    def rows_in_epoch(self, phase: int, objectives: Mapping[str, Objective]) -> int:
        """How many rows a phase reads for these questions before it reads one again."""
        return self._sources.of(phase, objectives).num_rows

    def assembled(
        self,
        phase: int,
        objectives: Mapping[str, Objective],
        index: NDArray[np.int64],
        epoch: NDArray[np.int64],
    ) -> Rows:
        """Rows ``index`` (B,) of an ``epoch`` (B,) before anything is hidden in them."""
        visit = _visited(objectives.values(), epoch)
        return self._sources.of(phase, objectives).rows(index, visit)

    def asked(
        self,
        place: Place,
        objectives: Mapping[str, Objective],
        index: NDArray[np.int64],
        epoch: NDArray[np.int64],
        first_row: int = 0,
        continues: bool = False,
    ) -> Batch:
        """Rows ``index`` (B,) of an ``epoch`` (B,) with some questions, as a place asks them."""
        ask = {
            name: asker(objective, self._recipe.seed, self._vocabulary, self._progress(place))
            for name, objective in objectives.items()
        }
        visit = _visited(objectives.values(), epoch)
        source = self._sources.of(place.phase, objectives)
        return make_batch(source, index, visit, ask, first_row, continues, self._vocabulary)

    def _rows(
        self, place: Place, asked: Mapping[str, Objective], of_step: NDArray[np.int64]
    ) -> Batch:
        """The rows of these numbers, counted within the step."""
        assembly = self._recipe.assembly_of(place.phase, asked.values())
        source = self._sources.of(place.phase, asked)
        at_once, first_row = self.num_rows(place), int(of_step[0])
        if isinstance(source, MixedRows):
            index, epoch = source.read_at(
                self._recipe.seed, place.step, place.rows, of_step, at_once
            )
            return self.asked(place, asked, index, epoch, first_row)
        # Every direction has an equal part of the step, and of the rows of the source.
        num_rows, at_once = source.num_rows // assembly.directions, at_once // assembly.directions
        direction, row = np.divmod(of_step, at_once)
        before = place.rows // assembly.directions
        if assembly.in_order:
            stretch = in_stretches(num_rows, at_once)
            around, step = divmod(before // at_once, stretch)
            # Row r of every step is a part of the r-th stretch of the text.
            index = row * stretch + np.where(direction == 1, stretch - 1 - step, step)
            epoch = np.full_like(index, around)
        else:
            step = 0
            index, epoch = self._shuffled(num_rows, before + row)
        index += direction * num_rows
        return self.asked(place, asked, index, epoch, first_row, continues=step > 0)

    def _shuffled(
        self, num_rows: int, number: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of so many rows is read as the ``number``-th of a run, and in which epoch."""
        epoch, drawn = np.divmod(number, num_rows)
        return round_by_round(partial(_order, num_rows, self._recipe.seed), epoch, drawn), epoch


def _sum(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    firsts, seconds = zip(*pairs, strict=True)
    return sum(firsts), sum(seconds)


def in_stretches(num_rows: int, at_once: int) -> int:
    """How many rows long a stretch of the text is where so many are read at once.

    Errors: UserError where there are fewer rows than that.
    """
    if num_rows < at_once:
        raise UserError(
            f"the text makes {num_rows} rows, and {at_once} are read side by side: set a smaller "
            f"batch_tokens or assembly.length, or prepare more text"
        )
    return num_rows // at_once


def asker(objective: Objective, seed: int, vocabulary: Vocabulary, progress: float) -> Ask:
    """An objective as it asks at a place."""

    def ask(
        rows: Rows,
        epoch: NDArray[np.int64],
        index: NDArray[np.int64],
        before: Mapping[str, Question],
    ) -> tuple[Rows, Question]:
        draw = Draw(seed, epoch, index)
        rows, question = objective.ask(rows, Asking(draw, vocabulary, progress, before))
        return objective.within_task(rows), question

    return ask


@lru_cache(maxsize=1024)
def _order(num_rows: int, seed: int, epoch: int) -> Permutation:
    return Permutation(num_rows, key(seed, "order", epoch))


def _visited(objectives: Iterable[Objective], epoch: NDArray[np.int64]) -> NDArray[np.int64]:
    """The epoch as which rows are assembled: static masks repeat whole rows."""
    for objective in objectives:
        if isinstance(objective, Hiding):
            epoch = np.asarray(objective.corruption.visit(epoch))
    return epoch
