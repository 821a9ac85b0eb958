"""Evaluation on held-out text during a run, with a warning if nothing is learned."""

import time
from collections.abc import Callable

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import metric_name
from bertwright.training.clock import Progress, TrainingClock, evenly_spaced
from bertwright.training.evaluation.held_out import (
    NUM_TOKENS_AT_END,
    NUM_TOKENS_DURING_TRAINING,
    NUM_WORD_BYTES,
    HeldOutEvaluation,
    evaluate,
    evaluate_next_items,
    make_held_out_evaluation,
    masked_objective_name,
)
from bertwright.training.evaluation.next_item import MAX_USERS_DURING_TRAINING
from bertwright.training.loop import EvaluationResult
from bertwright.training.process_group import SINGLE_PROCESS, ProcessGroup
from bertwright.training.run_warnings import RunWarnings

PLATEAU_NATS = 0.05
"""A masked loss is on the plateau if it is less than this below the unigram entropy."""

WARN_AFTER_FRACTION = 0.8
"""Fraction of the run after which a plateau is a reason to warn."""

MAX_BUDGET_FRACTION = 0.1
"""Maximum fraction of a time budget spent on evaluations."""

SAVING_SECONDS = 1.2
"""Seconds reserved for saving the weights and the plot."""

LARGER_SIZES = ("mini", "small", "medium", "base", "large", "xlarge", "xxlarge")
"""Model sizes that have a smaller one."""

BITS_PER_BYTE_TOKENS = NUM_WORD_BYTES // 3
"""Approximate number of tokens used to measure bits per byte."""


class HeldOutEvaluator:
    """Evaluates the objectives of the current phase.

    A data set with too little held-out text for one sequence is not evaluated; this is logged once.
    ``warnings`` receives what the metrics give reason to warn of.
    All processes of ``process_group`` evaluate at the same steps, and the same text.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Dataset,
        model: Model,
        clock: TrainingClock,
        warnings: RunWarnings,
        log: Callable[[str], None],
        process_group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self._recipe = recipe
        self._data = data
        self._model = model
        self._clock = clock
        self._warnings = warnings
        self._log = log
        self._process_group = process_group
        self._evaluations: dict[int, HeldOutEvaluation | None] = {}
        self._last_phase = len(recipe.phases) - 1
        self._evaluation_seconds = 0.0
        self._evaluated_at = 0.0

    def is_due(self, before: Progress, after: Progress) -> bool:
        """Return True nine times in a run, less often if evaluations exceed their budget."""
        if not evenly_spaced(9)(before, after):
            return False
        if self._clock.budget_seconds is None:
            return True
        seconds = self._clock.elapsed_seconds() - self._evaluated_at
        # The clocks of processes differ, but those of a sharded model compute it together.
        return self._process_group.broadcast(
            self._evaluation_seconds < MAX_BUDGET_FRACTION * seconds
        )

    def __call__(self, progress: Progress) -> EvaluationResult:
        """Evaluate the current phase.

        The score is the first loss of the phase; None unless the last phase is evaluated the same
        way.
        """
        evaluation = self._evaluation_of(progress.phase)
        if evaluation is None:
            return EvaluationResult(None, {})
        start = time.monotonic()
        metrics = evaluation.compute_metrics(self._model, self._model.embedding_table.device)
        metrics |= evaluate_next_items(
            self._model,
            self._recipe,
            progress.phase,
            self._data,
            max_users=MAX_USERS_DURING_TRAINING,
        )
        self._evaluation_seconds = self._process_group.broadcast(time.monotonic() - start)
        self._evaluated_at = self._clock.elapsed_seconds()
        self._clock.reserved_seconds = SAVING_SECONDS + self._size_at_end()[1]
        if progress.fraction >= WARN_AFTER_FRACTION:
            self._warn_of_plateau(progress.phase, metrics)
        first = next(
            name
            for name in evaluation.objectives
            if name not in evaluation.objectives_without_targets
        )
        comparable = self._phase_signature(progress.phase) == self._phase_signature(
            self._last_phase
        )
        score = metrics[f"{metric_name(first)}_loss"] if comparable else None
        return EvaluationResult(
            score, {f"heldout_{name}": value for name, value in metrics.items()}
        )

    def evaluate_at_end(self) -> dict[str, float]:
        """Return the metrics of the trained model, on more text if there is time."""
        try:
            metrics = evaluate(self._model, self._data, self._recipe, self._size_at_end()[0])
        except UserError as error:
            self._warnings.add("evaluation", f"the model is not evaluated: {error}")
            return {}
        self._warn_of_plateau(self._last_phase, metrics)
        return metrics

    def _size_at_end(self) -> tuple[float, float]:
        """Return the fraction of the text to read at the end, and an estimate of the seconds.

        On a short budget the fraction is less than 1.
        """
        seconds = (
            self._evaluation_seconds
            * (NUM_TOKENS_AT_END + BITS_PER_BYTE_TOKENS)
            / NUM_TOKENS_DURING_TRAINING
        )
        budget = self._clock.budget_seconds
        is_short = budget is not None and seconds > MAX_BUDGET_FRACTION * budget
        fraction = NUM_TOKENS_DURING_TRAINING / NUM_TOKENS_AT_END if is_short else 1.0
        return fraction, fraction * seconds

    def _remedy(self) -> str:
        """Return advice for a run that has learned too little."""
        longer = "more steps" if self._clock.budget_seconds is None else "a longer --budget"
        system, _, size = self._recipe.name.rpartition("-")
        if system and size in LARGER_SIZES:
            return f"use {longer}, or a smaller size of {system}"
        return f"use {longer}, or smaller batches (batch_tokens)"

    def _phase_signature(self, phase: int) -> tuple[object, ...]:
        """Return what the metrics of a phase depend on, except for the parameters."""
        recipe = self._recipe
        return (
            recipe.objectives_of(phase),
            recipe.input_format_of(phase),
            recipe.num_blocks_of(phase),
        )

    def _evaluation_of(self, phase: int) -> HeldOutEvaluation | None:
        if phase not in self._evaluations:
            try:
                evaluation = make_held_out_evaluation(
                    self._recipe, phase, self._data, NUM_TOKENS_DURING_TRAINING
                )
            except UserError as error:
                self._log(f"evaluation is skipped: {error}")
                evaluation = None
            if evaluation is not None and evaluation.objectives_without_targets:
                names = ", ".join(evaluation.objectives_without_targets)
                self._warnings.add(
                    f"targets of phase {phase}",
                    f"the held-out text has no target for {names}, which is not evaluated; prepare "
                    f"the data with a larger --heldout",
                )
            self._evaluations[phase] = evaluation
        return self._evaluations[phase]

    def _warn_of_plateau(self, phase: int, metrics: dict[str, float]) -> None:
        name = masked_objective_name(self._recipe.objectives_of(phase))
        if name is None or "unigram_entropy" not in metrics:
            return
        loss, entropy = metrics[f"{metric_name(name)}_loss"], metrics["unigram_entropy"]
        if loss > entropy - PLATEAU_NATS:
            self._warnings.add(
                "plateau",
                f"the held-out masked loss ({loss:.3f}) has not left the unigram entropy "
                f"({entropy:.3f}): the model has not yet learned more than token frequencies; "
                f"{self._remedy()}",
            )
