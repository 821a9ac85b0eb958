"""One pre-training run: its decisions, its job, and the model folder that it writes."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from bertwright.axes import Precision
from bertwright.encoder.roles import roles
from bertwright.errors import UserError
from bertwright.examples.batches import Batch
from bertwright.machine.compiler import compilation_obstacle, obstacle_of, raised_by_compiler
from bertwright.machine.description import description, versions
from bertwright.machine.speed import known_matrix_peak, reason_for, usual_precision
from bertwright.model.folder import RECIPE, save_model
from bertwright.model.model import Model
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes.loading import imported_plugins
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.charts import draw_losses
from bertwright.training.clipping import Clipping
from bertwright.training.clock import BudgetClock, Clock, Place, When, every
from bertwright.training.compilation.kinds import StepKinds
from bertwright.training.compilation.payoff import operations_per_token, repays
from bertwright.training.compilation.steps import COMPILE, Compilation, CompiledSteps
from bertwright.training.compilation.trial import Trial, TrialRun
from bertwright.training.distributed import Processes
from bertwright.training.few_steps import FewSteps
from bertwright.training.level_rates import LevelRates
from bertwright.training.loop import Evaluation, Job, Outcome, train
from bertwright.training.metrics_file import MetricsFile
from bertwright.training.moving_average import MovingAverage
from bertwright.training.progress import ProgressLine
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.recipe_procedures import recipe_procedures
from bertwright.training.reporting import Reporter, Reporters, Speed
from bertwright.training.run_folder import RunFolder
from bertwright.training.stream_memory import StreamMemory
from bertwright.training.teaching import PieceTeaching
from bertwright.training.tensorboard import TensorBoard
from bertwright.training.watching import HeldOutWatch

Decision = TypeVar("Decision")

CHECKPOINT_SECONDS = 600.0
"""Between checkpoints where the recipe does not say how many steps."""


@dataclass(frozen=True)
class Pretrained:
    """A run that has ended: the model's folder, its cost, and what it knows of held-out text."""

    path: Path
    steps: int
    tokens: int
    seconds: float
    figures: Mapping[str, float]
    warnings: tuple[str, ...] = ()


class Recompiled(Exception):
    """The run is to go on uncompiled; ``seconds`` were spent since its last checkpoint."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class PretrainingRun:
    """One run: its decisions, its job, and what is done when it has ended."""

    def __init__(
        self,
        model: Model,
        batches: RecipeBatches,
        data: Data,
        folder: RunFolder,
        mine: Processes,
        budget: float | None,
        started: float,
        teaching: PieceTeaching | None,
    ) -> None:
        self.recipe = recipe = model.recipe
        self.teaching = model.teaching = teaching
        if teaching is not None:
            teaching.begin(recipe.seed)
        self.batches, self.data, self.folder, self.mine = batches, data, folder, mine
        self.device = mine.device
        folder.checkpoints.keep = recipe.checkpoints_kept
        self.journal = folder.journal(mine)
        data_hash = self._decide("data", lambda: data.manifest.hash)
        self.budget: float | None = self._decide("budget", lambda: budget)
        check_same(folder.path, data, data_hash, budget, self.budget)
        about = "" if teaching is None else teaching.about
        if self._decide("teacher", lambda: about) != about:
            raise UserError(
                f"{folder.path} was started with {'another' if teaching else 'a'} teacher: "
                f"continue with the one it had"
            )
        self.vocabulary_size = data.tokenizer.size
        self.precision: Precision = self._decide(
            "precision", lambda: recipe.precision or usual_precision(self.device)
        )
        self.precision_reason = reason_for(self.precision, self.device)
        if self.precision != (recipe.precision or usual_precision(self.device)):
            self._say(f"the run goes on in {self.precision}, {self.precision_reason}")
        elif self.precision == "bf16" and usual_precision(self.device) == "float32":
            self._say(f"warning: precision=bf16 is {self.precision_reason}")
        self.peak = known_matrix_peak(self.precision, self.device)
        self.kinds = StepKinds(
            recipe, self.vocabulary_size, self.precision, torch.get_num_threads()
        )
        to_compile = self._decide(COMPILE, self._compile)
        self.clock = self._clock(started)
        self.compilation = self._compilation() if to_compile else None
        self.model = model.to(self.device)
        self.parameters = MasterParameters(
            self.model, roles(self.model), self.precision, self.device
        )
        decay = recipe.moving_average
        self.average = None if decay is None else MovingAverage(self.parameters, decay)
        self.watch = HeldOutWatch(recipe, data, self.model, self.clock, self._say)

    def to_the_end(self, tensorboard: bool, quiet: bool) -> Pretrained:
        """Train, evaluate, write the model folder."""
        newest, damaged = self.folder.checkpoints.newest()
        for path in damaged:
            self._say(f"{path} is damaged and passed over")
        if newest is not None:
            self._say(f"continuing after step {newest.step:,}")
        elif damaged:
            self._say("no checkpoint is whole: the run begins anew")
        reporter = self._reporter(newest.step if newest else 0, tensorboard, quiet)
        try:
            outcome = train(self._job(reporter), newest)
        except Exception as error:
            if self.compilation is None or not raised_by_compiler(error):
                raise
            self.journal.revise(COMPILE, False)
            self._say(f"{obstacle_of(error)}; training goes on uncompiled")
            raise Recompiled(self._since_the_last_checkpoint()) from error
        finally:
            if self.compilation is not None:
                self.compilation.close()
        if self.compilation is not None and self.compilation.compiled:
            self.kinds.note_warm()
        if not self.mine.first:
            return Pretrained(self.folder.path, outcome.steps, outcome.tokens, outcome.seconds, {})
        return self._write(outcome)

    def _since_the_last_checkpoint(self) -> float:
        newest, _ = self.folder.checkpoints.newest()
        return self.clock.elapsed() - (newest.state["seconds"] if newest else 0.0)

    def _job(self, reporter: Reporter) -> Job[Batch]:
        recipe = self.recipe
        update = recipe.optimiser.build(self.parameters)
        memory = StreamMemory(recipe.encoder.memory)
        procedures = recipe_procedures(self.model, self.parameters, update, self.average)
        if self.teaching is not None:
            procedures.append(LevelRates(self.parameters, self.teaching.rates))
        if self.compilation is not None:
            procedures.append(self.compilation)
        job = Job(
            parameters=self.parameters,
            update=update,
            procedures=[*procedures, memory],
            batch=self._batch,
            losses=RecipeLosses(recipe, self.model, memory=memory, teaching=self.teaching),
            clock=self.clock,
            rate=recipe.schedule.at,
            weights=self._weights,
            clip=Clipping(recipe.clip),
            processes=self.mine,
            evaluate=self._evaluate,
            evaluate_when=every(recipe.evaluate_every) if recipe.evaluate_every else self.watch.due,
            checkpoints=self.folder.checkpoints,
            checkpoint_when=self._checkpoint_when(),
            reporter=reporter,
            compile_model=self.model.compile_parts,
            folder=self.folder.path,
        )
        if self.compilation is not None:
            self.compilation.attach(job)
        return job

    def _batch(self, place: Place) -> StepBatch[Batch]:
        step = self.batches(place)
        return step if self.teaching is None else self.teaching.prepared(step, place)

    def _weights(self, place: Place) -> Mapping[str, float]:
        own = self.batches.weights(place)
        if self.teaching is None:
            return own
        share = self.teaching.share(place)
        return {n: share * w for n, w in own.items()} | self.teaching.weights(place)

    def _evaluate(self, place: Place) -> Evaluation:
        with nullcontext() if self.average is None else self.average.lent():
            return self.watch(place)

    def _reporter(self, first_step: int, tensorboard: bool, quiet: bool) -> Reporter:
        if not self.mine.first:
            return Reporter()
        operations = operations_per_token(self.recipe, self.vocabulary_size)
        speed = Speed(operations, self.peak * self.mine.world)
        reporters: list[Reporter] = [
            speed,
            MetricsFile(self.folder.metrics, self.clock, speed, first_step),
            FewSteps(self.clock, self.watch.warn),
        ]
        if not quiet:
            progress = ProgressLine(self.clock, speed)
            progress.begin(self._activity())
            reporters.append(progress)
        if tensorboard:
            reporters.append(TensorBoard(self.folder.path / "tensorboard"))
        return Reporters(*reporters)

    def _activity(self) -> str:
        """Return what the run does at first, in words."""
        compiled = "uncompiled"
        if self.compilation is not None:
            compiled = "steps are compiled first"
            if self.budget is not None:
                compiled = "uncompiled while steps are compiled beside it"
        name, threads = self.recipe.name, torch.get_num_threads()
        return f"training {name} in {self.precision}, {threads} threads, {compiled}"

    def _clock(self, started: float) -> Clock:
        shares = [phase.share for phase in self.recipe.phases]
        if self.budget is None:
            return Clock(self.recipe.steps, shares, started)
        return BudgetClock(self.budget, shares, started, journal=self.journal, processes=self.mine)

    def _checkpoint_when(self) -> When:
        if self.recipe.checkpoint_every is not None:
            return every(self.recipe.checkpoint_every)
        written = [time.monotonic()]

        def long_ago(before: Place, after: Place) -> bool:
            if not self.mine.share(time.monotonic() - written[0] >= CHECKPOINT_SECONDS):
                return False
            written[0] = time.monotonic()
            return True

        return long_ago

    def _compile(self) -> bool:
        if self.teaching is not None:
            if self.recipe.compile is True:
                self._say("compile: beside a teacher nothing is compiled")
            return False
        if self.recipe.compile is False:
            return False
        obstacle = compilation_obstacle() if self.device.type == "cpu" else None
        if obstacle is not None:
            self._say(f"steps are not compiled: {obstacle}")
            return False
        if self.recipe.compile is True:
            return True
        kind = self.device.type
        return repays(self.recipe, self.kinds, self.vocabulary_size, kind, self.peak, self.budget)

    def _compilation(self) -> CompiledSteps:
        run = TrialRun(
            str(self.folder.path / RECIPE),
            str(self.data.path),
            self.precision,
            torch.get_num_threads(),
            [str(path) for path in imported_plugins()],
        )
        return CompiledSteps(
            Compilation(
                self.kinds,
                self.journal,
                self.clock,
                self.mine,
                self._say,
                None if self.budget is None else partial(Trial, run),
                whatever_it_repays=self.recipe.compile is True,
            )
        )

    def _decide(self, name: str, make: Callable[[], Decision]) -> Decision:
        """A decision of the first process, taken once for the whole run."""
        return self.mine.share(self.journal.decide(name, make))

    def _say(self, message: str) -> None:
        if self.mine.first:
            print(message, file=sys.stderr, flush=True)

    def _write(self, outcome: Outcome) -> Pretrained:
        if self.average is not None:
            self.average.take_over()
        figures = self.watch.at_the_end()
        self.parameters.release()
        self.model.teaching = None
        draw_losses(self.folder.metrics, self.folder.picture, figures.get("unigram_entropy"))
        result = Pretrained(
            self.folder.path,
            outcome.steps,
            outcome.tokens,
            self.clock.elapsed(),
            figures,
            tuple(self.watch.warnings),
        )
        save_model(self.folder.path, self.model, self.data.tokenizer, self._about(result))
        return result

    def _about(self, result: Pretrained) -> dict[str, Any]:
        """What ``training.json`` says."""
        manifest = self.data.manifest
        return {
            "recipe": self.recipe.name,
            "seed": self.recipe.seed,
            "data": str(self.data.path),
            "data_hash": manifest.hash,
            "tokenizer_hash": manifest.tokenizer.hash,
            "steps": result.steps,
            "tokens": result.tokens,
            "seconds": round(result.seconds, 2),
            "budget_seconds": self.budget,
            "precision": self.precision,
            "precision_reason": self.precision_reason,
            "compiled": self.compilation is not None and self.compilation.compiled,
            "processes": self.mine.world,
            "machine": description(),
            "matrix_peak": self.peak,
            "versions": versions("bertwright", "torch", "tokenizers", "numpy"),
            "result": dict(result.figures),
            "warnings": list(result.warnings),
        }


def check_same(
    folder: Path, data: Data, data_hash: str, budget: float | None, started_with: float | None
) -> None:
    """Refuse other data or another budget than a run was started with."""
    if data.manifest.hash != data_hash:
        raise UserError(
            f"{folder} was started with other data than {data.path}: continue with the data it had"
        )
    if budget is not None and budget != started_with:
        had = "steps" if started_with is None else f"a budget of {started_with} seconds"
        raise UserError(f"{folder} was started with {had}: continue without --budget")
