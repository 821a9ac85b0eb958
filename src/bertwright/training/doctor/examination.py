"""All checks, in the order in which they cost time."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertwright.optimisers.adam import AdamFamily
from bertwright.recipes import Recipe
from bertwright.text.shards import Data, unigram_entropy
from bertwright.training.clock import BudgetClock
from bertwright.training.distributed import processes
from bertwright.training.doctor import by_heart, range_test, short_run
from bertwright.training.doctor.data_checks import check_data
from bertwright.training.doctor.drawing import draw
from bertwright.training.doctor.findings import Finding, Verdict, merged, worst
from bertwright.training.doctor.isolation import check_isolation
from bertwright.training.doctor.mask_checks import check_questions
from bertwright.training.doctor.recipe_checks import check_recipe
from bertwright.training.doctor.trial import Trial
from bertwright.training.run_folder import choose_recipe, fitted

BY_HEART, RANGE_TEST, SHORT_RUN = 1 / 6, 1 / 2, 1 / 3
"""Shares of the time of the trials."""

RANGE_STEPS, RUN_STEPS = 300, 50
"""That should fit into the time: batches are cut where they would not."""

LARGEST_RANGE_BATCH = 4096
"""Tokens of a step of the range test."""


@dataclass(frozen=True)
class Examination:
    """What was found, in the order of the checks."""

    data: Path
    recipe: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        return worst(self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: what ``--json`` prints."""
        return {
            "data": str(self.data),
            "recipe": self.recipe,
            "verdict": self.verdict,
            "seconds": self.seconds,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def examine(
    data: Data | str | Path,
    recipe: Recipe | str | Path | None = None,
    *,
    changes: Iterable[str] = (),
    minutes: float = 4.0,
    quick: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> Examination:
    """Look for what makes training fail: in the text, the recipe, its batches, and a few trials.

    Args:
        data: a folder that ``prepare`` wrote.
        recipe: a recipe, its name or file; None takes ``modern-mini``.
        changes: ``key.path=value`` for a recipe that is named.
        minutes: for the trials, of which half is the range test.
        quick: without trials.
        say: is told what is done next.

    Errors: UserError for a recipe that does not fit the data or asks nothing.
    """
    started = time.monotonic()
    opened = data if isinstance(data, Data) else Data.open(data)
    chosen = fitted(choose_recipe(recipe, changes, None, None), opened)
    say(f"reading {opened.path}")
    findings = [*check_data(opened, chosen), *check_recipe(chosen)]
    say("drawing batches")
    findings += merged(_check_batches(chosen, opened))
    if not quick:
        findings += _try(chosen, opened, 60 * minutes, say)
    seconds = round(time.monotonic() - started, 1)
    return Examination(opened.path, chosen.name, tuple(findings), seconds)


def _check_batches(recipe: Recipe, data: Data) -> Iterator[Finding]:
    """The batches of every phase; phases that draw and ask alike are looked at once."""
    seen: list[object] = []
    for phase in range(len(recipe.phases)):
        objectives = recipe.objectives_of(phase)
        alike = (recipe.assembly_of(phase), objectives)
        if alike in seen:
            continue
        seen.append(alike)
        for turn in recipe.turns_of(phase):
            drawn = draw(recipe, data, phase, turn.objectives)
            yield from check_questions(drawn, turn.objectives, data.tokenizer)
            asked = list(turn.objectives.values())
            yield from check_isolation(drawn, recipe, asked, data.tokenizer.size)


def _try(
    recipe: Recipe, data: Data, seconds: float, say: Callable[[str], None]
) -> Iterator[Finding]:
    entropy = unigram_entropy(data.piece_counts)
    with processes() as mine:
        trial = Trial.of(recipe, data, mine)
        if trial is None:
            yield Finding("trials.none", "note", "no objective names pieces: nothing was tried")
            return
        say("learning one batch by heart")
        heart = by_heart.learn_by_heart(trial, entropy, BY_HEART * seconds)
        yield by_heart.judged(heart, entropy)
        if isinstance(recipe.optimiser, AdamFamily):
            given = RANGE_TEST * seconds
            say(f"raising the learning rate for {given:.0f} s, or until the loss diverges")
            most = min(LARGEST_RANGE_BATCH, heart.tokens_per_second * given / RANGE_STEPS)
            clock = BudgetClock(given, [1.0], time.monotonic())
            found = range_test.range_test(trial.with_batches(most), clock)
            yield range_test.judged(found, recipe)
    given = SHORT_RUN * seconds
    say(f"running the recipe for {given:.0f} s")
    most = heart.tokens_per_second * given / RUN_STEPS
    yield short_run.found(recipe, data, given, most)
