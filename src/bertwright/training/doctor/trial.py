"""A trial: a few steps of a recipe's own model in the one loop, without a folder to keep."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bertwright.encoder.roles import roles
from bertwright.examples.batches import Batch
from bertwright.machine.speed import usual_precision
from bertwright.model.model import Model
from bertwright.optimisers.optimiser import Optimiser
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.schedules import Constant
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place
from bertwright.training.distributed import Processes
from bertwright.training.loop import Job, train
from bertwright.training.progress import ProgressLine
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.reporting import Reporter, Reporters, Speed, StepReport
from bertwright.training.step_watch import NotFinite


class Enough(Exception):
    """A trial has shown what it was made for."""


@dataclass(frozen=True)
class Trial:
    """What is tried: a recipe of one phase whose ``question`` names pieces, on a data set."""

    recipe: Recipe
    question: str
    data: Data
    mine: Processes

    @classmethod
    def of(cls, recipe: Recipe, data: Data, mine: Processes) -> "Trial | None":
        """The longest phase that asks for pieces; None where no phase asks for any."""
        asking = [
            (phase.share, number, name)
            for number, phase in enumerate(recipe.phases)
            for name, objective in recipe.objectives_of(number).items()
            if objective.names_pieces
        ]
        if not asking:
            return None
        _, number, question = max(asking, key=lambda each: each[0])
        return cls(_only_turn(recipe, number, question), question, data, mine)

    def with_batches(self, most_tokens: float) -> "Trial":
        """The same with batches of at most so many tokens, and at least one row."""
        return replace(self, recipe=with_batches(self.recipe, most_tokens))

    def run(
        self,
        clock: Clock,
        watch: Callable[[StepReport], None],
        *,
        optimiser: Optimiser,
        rate: Callable[[float], float],
        batch: Callable[[Place], StepBatch[Batch]] | None = None,
        with_dropout: bool = True,
    ) -> bool:
        """Train a new model until the clock has finished or ``watch`` raises Enough.

        Returns whether the loss and the gradient stayed finite.
        """
        recipe, device = self.recipe, self.mine.device
        model = Model.build(recipe, self.data.tokenizer.size, self.data.tokenizer).to(device)
        precision = recipe.precision or usual_precision(device)
        parameters = MasterParameters(model, roles(model), precision, device)
        batches = RecipeBatches(recipe, self.data, self.mine)
        watching, speed = _Watching(watch), Speed()
        with tempfile.TemporaryDirectory() as folder:
            job = Job(
                parameters=parameters,
                update=optimiser.build(parameters),
                batch=batch or batches,
                losses=RecipeLosses(recipe, model, with_dropout),
                clock=clock,
                rate=rate,
                weights=batches.weights,
                clip=Clipping(recipe.clip),
                processes=self.mine,
                reporter=Reporters(speed, ProgressLine(clock, speed), watching),
                folder=Path(folder),
            )
            try:
                train(job)
            except Enough:
                return True
            except NotFinite:
                return False
        return True


def with_batches(recipe: Recipe, most_tokens: float) -> Recipe:
    """A recipe whose batches hold at most so many tokens, in every phase; at least one row."""
    highest = recipe.batch_tokens.extremes()[1]
    if highest * max(phase.batch for phase in recipe.phases) <= most_tokens:
        return recipe
    cut = [
        max(min(highest * phase.batch, most_tokens), recipe.assembly_of(number).length)
        for number, phase in enumerate(recipe.phases)
    ]
    phases = tuple(
        phase.model_copy(update={"batch": tokens / most_tokens})
        for phase, tokens in zip(recipe.phases, cut, strict=True)
    )
    batch_tokens = Constant(value=most_tokens)
    return recipe.model_copy(update={"batch_tokens": batch_tokens, "phases": phases})


def _only_turn(recipe: Recipe, number: int, question: str) -> Recipe:
    """A recipe of one phase, whose steps all ask a question and what is asked beside it."""
    changed: dict[str, object] = {"share": 1.0, "batch": 1.0}
    turns = recipe.turns_of(number)
    if len(turns) > 1:
        stated = recipe.phases[number].objectives or {}
        asked = next(turn.objectives for turn in turns if question in turn.objectives)
        changed["objectives"] = {name: stated.get(name, {}) for name in asked}
    phase = recipe.phases[number].model_copy(update=changed)
    batch_tokens = Constant(value=recipe.batch_tokens_at(number, 1.0))
    return recipe.model_copy(update={"batch_tokens": batch_tokens, "phases": (phase,)})


class _Watching(Reporter):
    def __init__(self, watch: Callable[[StepReport], None]) -> None:
        self._watch = watch

    def step(self, report: StepReport) -> None:
        self._watch(report)
