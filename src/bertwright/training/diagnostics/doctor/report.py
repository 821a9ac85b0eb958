"""Run all checks, the fastest first."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertwright.data.shards.dataset import Dataset, unigram_entropy
from bertwright.optimisers.adam import AdamFamilyConfig
from bertwright.recipes import Recipe
from bertwright.training.clock import BudgetClock
from bertwright.training.diagnostics.doctor import memorisation, range_test, short_run
from bertwright.training.diagnostics.doctor.batch_samples import sample_batches
from bertwright.training.diagnostics.doctor.data_checks import check_data
from bertwright.training.diagnostics.doctor.diagnostic import (
    Diagnostic,
    Severity,
    merge_phases,
    worst_severity,
)
from bertwright.training.diagnostics.doctor.isolation import check_isolation
from bertwright.training.diagnostics.doctor.recipe_checks import check_recipe
from bertwright.training.diagnostics.doctor.target_checks import check_targets
from bertwright.training.diagnostics.doctor.trial import DiagnosticTrial
from bertwright.training.pretraining.run_folder import fit_recipe_to_data, resolve_recipe
from bertwright.training.process_group import process_group

MEMORISATION_FRACTION, RANGE_TEST_FRACTION, SHORT_RUN_FRACTION = 1 / 6, 1 / 2, 1 / 3
"""Fractions of the time of the trials."""

MIN_RANGE_TEST_STEPS, MIN_SHORT_RUN_STEPS = 300, 50
"""Minimum number of steps that should fit into the time; otherwise batches are made smaller."""

MAX_RANGE_TEST_BATCH_TOKENS = 4096
"""Maximum number of tokens per step of the range test."""


@dataclass(frozen=True)
class DoctorReport:
    """The diagnostics, in the order of the checks."""

    data: Path
    recipe: str
    diagnostics: tuple[Diagnostic, ...]
    seconds: float

    @property
    def severity(self) -> Severity:
        """Return the worst severity."""
        return worst_severity(self.diagnostics)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary, for ``--json``."""
        return {
            "data": str(self.data),
            "recipe": self.recipe,
            "severity": self.severity,
            "seconds": self.seconds,
            "diagnostics": [diagnostic.as_dict() for diagnostic in self.diagnostics],
        }


def diagnose(
    data: Dataset | str | Path,
    recipe: Recipe | str | Path | None = None,
    *,
    overrides: Iterable[str] = (),
    minutes: float = 4.0,
    quick: bool = False,
    log: Callable[[str], None] = lambda message: None,
) -> DoctorReport:
    """Check text, recipe and batches for causes of failed training, and run a few trials.

    Args:
        data: folder written by ``prepare``.
        recipe: recipe, or its name or file; None takes ``modern-mini``.
        overrides: ``key.path=value`` changes to a named recipe.
        minutes: time for the trials, half of it for the range test.
        quick: skip the trials.
        log: receives progress messages.

    Errors: UserError for a recipe that does not fit the data, or has no objectives.
    """
    start = time.monotonic()
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    fitted = fit_recipe_to_data(resolve_recipe(recipe, overrides, None, None), dataset)
    log(f"reading {dataset.path}")
    diagnostics = [*check_data(dataset, fitted), *check_recipe(fitted)]
    log("sampling batches")
    diagnostics += merge_phases(_check_batches(fitted, dataset))
    if not quick:
        diagnostics += _run_trials(fitted, dataset, 60 * minutes, log)
    seconds = round(time.monotonic() - start, 1)
    return DoctorReport(dataset.path, fitted.name, tuple(diagnostics), seconds)


def _check_batches(recipe: Recipe, data: Dataset) -> Iterator[Diagnostic]:
    """Check the batches of every phase; equal phases are checked once."""
    checked: list[object] = []
    for phase in range(len(recipe.phases)):
        settings = (recipe.input_format_of(phase), recipe.objectives_of(phase))
        if settings in checked:
            continue
        checked.append(settings)
        for group in recipe.objective_schedule(phase):
            samples = sample_batches(recipe, data, phase, group.objectives)
            yield from check_targets(samples, group.objectives, data.tokenizer)
            objectives = list(group.objectives.values())
            yield from check_isolation(samples, recipe, objectives, data.tokenizer.vocab_size)


def _run_trials(
    recipe: Recipe, data: Dataset, seconds: float, log: Callable[[str], None]
) -> Iterator[Diagnostic]:
    entropy = unigram_entropy(data.token_counts)
    with process_group() as group:
        trial = DiagnosticTrial.of_recipe(recipe, data, group)
        if trial is None:
            yield Diagnostic("trials.none", "note", "no objective predicts tokens: no trials")
            return
        log("memorising one batch")
        memorised = memorisation.memorise_batch(trial, entropy, MEMORISATION_FRACTION * seconds)
        yield memorisation.diagnose_memorisation(memorised, entropy)
        if isinstance(recipe.optimiser, AdamFamilyConfig):
            budget = RANGE_TEST_FRACTION * seconds
            log(f"raising the learning rate for {budget:.0f} s, or until the loss diverges")
            batch_limit = memorised.tokens_per_second * budget / MIN_RANGE_TEST_STEPS
            trial = trial.with_batch_limit(min(MAX_RANGE_TEST_BATCH_TOKENS, batch_limit))
            clock = BudgetClock(budget, [1.0], time.monotonic())
            yield range_test.diagnose_range_test(range_test.run_range_test(trial, clock), recipe)
    budget = SHORT_RUN_FRACTION * seconds
    log(f"running the recipe for {budget:.0f} s")
    batch_limit = memorised.tokens_per_second * budget / MIN_SHORT_RUN_STEPS
    yield short_run.run_and_diagnose(recipe, data, budget, batch_limit)
