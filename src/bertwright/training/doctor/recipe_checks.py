"""Checks of a recipe as it is written: known ways to learn little.

Each check is a function of the recipe alone, None where it does not apply.
"""

from collections.abc import Callable

from bertwright.encoder.initialisation import Published
from bertwright.encoder.positions import Learned
from bertwright.examples.corruption import Replace
from bertwright.model.counting import parameters_by_part
from bertwright.objectives.causal import Causal
from bertwright.objectives.masked import Masked
from bertwright.recipes import Recipe
from bertwright.training.doctor.findings import Finding, Verdict, graded
from bertwright.training.doctor.optimiser_checks import OPTIMISER_CHECKS

FEW_QUESTIONS, ENOUGH_QUESTIONS = 100, 250
"""Pieces asked in a step, below which gradients are mostly noise."""

LARGE_MODEL, SMALL_BATCH = 50_000_000, 16_384
"""A model of so many parameters was never published with a batch of so few tokens."""

EVALUATED_RATE = 0.15
"""What every evaluation hides."""


def check_recipe(recipe: Recipe) -> list[Finding]:
    """Everything that can be said of a recipe without running it."""
    return [found for check in CHECKS if (found := check(recipe)) is not None]


def batch(recipe: Recipe) -> Finding | None:
    """Pieces asked in a step, in the phase that asks the fewest."""
    found = [(_questions(recipe, phase), phase) for phase in range(len(recipe.phases))]
    asked = [each for each in found if each[0] > 0]
    if not asked:
        return None
    questions, phase = min(asked)
    tokens, length = recipe.batch_tokens_at(phase, 1.0), recipe.assembly_of(phase).length
    # Of the phase, whose batch may be a share of the recipe's, which is what can be set.
    share = recipe.phases[phase].batch
    wanted = max(tokens * ENOUGH_QUESTIONS / questions, length) / share
    bad = questions < ENOUGH_QUESTIONS or tokens < length
    few = questions < FEW_QUESTIONS or tokens < length
    verdict: Verdict = "warning" if few else "note" if bad else "ok"
    seen = f"{tokens:,.0f} tokens and {questions:,.0f} pieces asked in a step"
    if tokens < length:
        seen += f", less than one row of {length}"
    number = sum(parameters_by_part(recipe).values())
    if verdict == "ok" and tokens < SMALL_BATCH and number > LARGE_MODEL:
        verdict, wanted = "note", SMALL_BATCH
        seen += f" for {number / 1e6:.0f} million parameters"
    return Finding(
        "recipe.batch",
        verdict,
        seen,
        "" if verdict == "ok" else f"set batch_tokens={-(-int(wanted) // length) * length} or more",
        {"questions": questions, "tokens": tokens},
    )


def initialisation(recipe: Recipe) -> Finding | None:
    """A deviation of 0.02 is that of width 1/0.02^2 = 2,500: small models start too quiet."""
    choice, width = recipe.encoder.initialisation, recipe.encoder.width
    if not isinstance(choice, Published):
        return None
    bad = choice.std < 0.5 * width**-0.5
    return Finding(
        "recipe.initialisation",
        "note" if bad else "ok",
        f"weights start with a deviation of {choice.std:g}; 1/sqrt(width) is {width**-0.5:.2g}",
        "set encoder.initialisation.kind=width-aware: short runs of small models leave the plateau "
        "far earlier"
        if bad
        else "",
        {"deviation": choice.std, "by_width": width**-0.5},
    )


def table_share(recipe: Recipe) -> Finding | None:
    """How much of the model is its vocabulary."""
    parts = parameters_by_part(recipe)
    number = sum(parts.values())
    table = recipe.text.tokenizer.size * recipe.encoder.table_width
    share = table / number
    verdict = graded(share, note=0.65)
    return Finding(
        "recipe.table",
        verdict,
        f"the table of {recipe.text.tokenizer.size:,} pieces is {share:.0%} of {number:,} "
        f"parameters",
        ""
        if verdict == "ok"
        else "train a smaller tokenizer (--vocab-size 8192), or set encoder.embeddings.kind="
        "factorised",
        {"share": share, "parameters": number},
    )


def positions(recipe: Recipe) -> Finding | None:
    """Learned positions beyond the longest row stay as they were drawn."""
    scheme = recipe.encoder.positions
    if not isinstance(scheme, Learned):
        return None
    longest = max(recipe.assembly_of(n).length for n in range(len(recipe.phases)))
    bad = scheme.size > longest
    return Finding(
        "recipe.positions",
        "note" if bad else "ok",
        f"{scheme.size} learned positions, the longest row has {longest}",
        f"positions from {longest} on are never trained: set encoder.positions.size={longest}, or "
        f"add a phase with longer rows"
        if bad
        else "",
        {"positions": scheme.size, "longest_row": longest},
    )


def corruption_shares(recipe: Recipe) -> Finding | None:
    """Masks that are none, or that hide nearly all of the text."""
    phases = range(len(recipe.phases))
    masked = [
        objective
        for phase in phases
        for objective in recipe.objectives_of(phase).values()
        if isinstance(objective, Masked)
    ]
    if not masked:
        return None
    replacing = (o.corruption for o in masked if isinstance(o.corruption, Replace))
    visible = max((corruption.keep for corruption in replacing), default=0.0)
    highest = max(o.selection.highest_rate for o in masked)
    bad = visible > 0.5 or highest > 0.6 or highest < 0.05
    return Finding(
        "recipe.masks",
        "warning" if bad else "ok",
        f"up to {highest:.0%} of the places are asked, {visible:.0%} of them shown as they are",
        "15 to 40 % asked and 10 % shown is what works (Wettig et al. 2023)" if bad else "",
        {"rate": highest, "keep": visible},
    )


def evaluated_rate(recipe: Recipe) -> Finding | None:
    """Evaluations always hide 15 %: their loss is not that of training."""
    rates = [
        objective.selection.rate.at(1.0)
        for objective in recipe.objectives_of(len(recipe.phases) - 1).values()
        if isinstance(objective, Masked)
    ]
    if not rates:
        return None
    differs = abs(rates[0] - EVALUATED_RATE) > 0.005
    return Finding(
        "recipe.evaluated-rate",
        "note" if differs else "ok",
        f"training ends with {rates[0]:.0%} hidden, evaluations hide {EVALUATED_RATE:.0%}",
        "compare held-out losses with held-out losses only" if differs else "",
        {"trained": rates[0], "evaluated": EVALUATED_RATE},
    )


def answers_in_place(recipe: Recipe) -> Finding | None:
    """Stock classes read the answer at the hidden place itself."""
    last = recipe.objectives_of(len(recipe.phases) - 1).values()
    if not any(isinstance(o, Masked) and o.shift for o in last):
        return None
    return Finding(
        "recipe.shift",
        "note",
        "training ends with answers read one place before the hidden one",
        "end with a phase whose masked.shift is 0: an exported model cannot fill masks otherwise",
    )


CHECKS: tuple[Callable[[Recipe], Finding | None], ...] = (
    *OPTIMISER_CHECKS,
    batch,
    initialisation,
    table_share,
    positions,
    corruption_shares,
    evaluated_rate,
    answers_in_place,
)


def _questions(recipe: Recipe, phase: int) -> float:
    """Pieces asked in a step at the end of a phase; 0 where no objective names pieces."""
    tokens, length = recipe.batch_tokens_at(phase, 1.0), recipe.assembly_of(phase).length
    asked = [
        tokens * (o.selection.rate.at(1.0) if isinstance(o, Masked) else o.per_place(length))
        for o in recipe.objectives_of(phase).values()
        if isinstance(o, Masked | Causal)
    ]
    return max(asked, default=0.0)
