"""Checks of a recipe for settings known to work badly.

Each check depends only on the recipe and returns None if it does not apply.
"""

from collections.abc import Callable

from bertwright.batches.masking import MaskSelection
from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.models.costs import num_parameters_by_part
from bertwright.modules.attention.positions import LearnedPositionsConfig
from bertwright.modules.initialisation import PublishedInitialisationConfig
from bertwright.objectives.masked import EVALUATION_MASKING_RATE
from bertwright.objectives.objective import Objective
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity, grade
from bertwright.training.diagnostics.doctor.optimiser_checks import OPTIMISER_CHECKS

MIN_TARGETS, ENOUGH_TARGETS = 100, 250
"""Token predictions per step below which gradients are mostly noise."""

LARGE_MODEL_PARAMETERS, SMALL_BATCH_TOKENS = 50_000_000, 16_384
"""No published model with more parameters has a smaller batch."""


def check_recipe(recipe: Recipe) -> list[Diagnostic]:
    """Run all checks of a recipe."""
    return [d for check in RECIPE_CHECKS if (d := check(recipe)) is not None]


def check_batch(recipe: Recipe) -> Diagnostic | None:
    """Check the number of predicted tokens per step, in the phase with the fewest."""
    by_phase = [(_num_targets(recipe, phase), phase) for phase in range(len(recipe.phases))]
    num_targets, phase = min(
        (entry for entry in by_phase if entry[0] > 0), default=(0.0, len(by_phase))
    )
    if num_targets == 0:
        return None
    tokens, length = recipe.batch_tokens_at(phase, 1.0), recipe.input_format_of(phase).length
    # The advice gives the recipe's batch_tokens, before the multiplier of the phase.
    required = max(tokens * ENOUGH_TARGETS / num_targets, length) / recipe.phases[phase].batch
    severity: Severity = "ok"
    if num_targets < MIN_TARGETS or tokens < length:
        severity = "warning"
    elif num_targets < ENOUGH_TARGETS:
        severity = "note"
    message = f"{tokens:,.0f} tokens and {num_targets:,.0f} targets per step"
    if tokens < length:
        message += f", less than one sequence of {length}"
    num_parameters = sum(num_parameters_by_part(recipe).values())
    is_large = num_parameters > LARGE_MODEL_PARAMETERS
    if severity == "ok" and tokens < SMALL_BATCH_TOKENS and is_large:
        severity, required = "note", SMALL_BATCH_TOKENS
        message += f" for {num_parameters / 1e6:.0f} million parameters"
    return Diagnostic(
        "recipe.batch",
        severity,
        message,
        f"set batch_tokens={-(-int(required) // length) * length} or more",
        {"num_targets": num_targets, "tokens": tokens},
    )


def check_initialisation(recipe: Recipe) -> Diagnostic | None:
    """Check the initial scale: 0.02 suits width 1/0.02^2 = 2,500, and is small for less."""
    config, width = recipe.encoder.initialisation, recipe.encoder.width
    if not isinstance(config, PublishedInitialisationConfig):
        return None
    return Diagnostic(
        "recipe.initialisation",
        "note" if config.std < 0.5 * width**-0.5 else "ok",
        f"weights start with a standard deviation of {config.std:g}; 1/sqrt(width) is "
        f"{width**-0.5:.2g}",
        "set encoder.initialisation.kind=width-aware: short runs of small models leave the plateau "
        "far earlier",
        {"deviation": config.std, "by_width": width**-0.5},
    )


def check_embedding_table(recipe: Recipe) -> Diagnostic | None:
    """Check the fraction of parameters in the embedding table."""
    num_parameters = sum(num_parameters_by_part(recipe).values())
    vocab_size = recipe.text.tokenizer.vocab_size
    fraction = vocab_size * recipe.encoder.token_embedding_width / num_parameters
    return Diagnostic(
        "recipe.embedding-table",
        grade(fraction, note=0.65),
        f"the embedding table of {vocab_size:,} tokens is {fraction:.0%} of {num_parameters:,} "
        f"parameters",
        "train a smaller tokenizer (--vocab-size 8192), or set encoder.embeddings.kind=factorised",
        {"fraction": fraction, "parameters": num_parameters},
    )


def check_positions(recipe: Recipe) -> Diagnostic | None:
    """Check for learned positions beyond the longest sequence, which are never trained."""
    config = recipe.encoder.positions
    if not isinstance(config, LearnedPositionsConfig):
        return None
    longest = max(recipe.input_format_of(n).length for n in range(len(recipe.phases)))
    return Diagnostic(
        "recipe.positions",
        "note" if config.size > longest else "ok",
        f"{config.size} learned positions, the longest sequence has {longest}",
        f"positions from {longest} on are never trained: set encoder.positions.size={longest}, or "
        f"add a phase with longer sequences",
        {"positions": config.size, "longest_sequence": longest},
    )


def check_masking(recipe: Recipe) -> Diagnostic | None:
    """Check that masking keeps neither too little nor too much of the text."""
    masked = [o for phase in range(len(recipe.phases)) for o in _masked_objectives(recipe, phase)]
    if not masked:
        return None
    corruptions = (objective.token_corruption for objective, _ in masked)
    kept = max((c.keep for c in corruptions if isinstance(c, TokenReplacement)), default=0.0)
    highest = max(selection.max_masking_rate for _, selection in masked)
    is_unusual = kept > 0.5 or highest > 0.6 or highest < 0.05
    return Diagnostic(
        "recipe.masking",
        "warning" if is_unusual else "ok",
        f"up to {highest:.0%} of the positions are masked, {kept:.0%} of them kept unchanged",
        "masking 15 to 40 % and keeping 10 % works well (Wettig et al. 2023)",
        {"masking_rate": highest, "keep": kept},
    )


def check_evaluation_masking_rate(recipe: Recipe) -> Diagnostic | None:
    """Compare the masking rates of training and evaluation: their losses differ."""
    masked = _masked_objectives(recipe, len(recipe.phases) - 1)
    rates = [selection.masking_rate.at(1.0) for _, selection in masked]
    if not rates:
        return None
    return Diagnostic(
        "recipe.evaluation-masking-rate",
        "note" if abs(rates[0] - EVALUATION_MASKING_RATE) > 0.005 else "ok",
        f"training ends with {rates[0]:.0%} masked, evaluations mask {EVALUATION_MASKING_RATE:.0%}",
        "compare held-out losses only with held-out losses",
        {"training_masking_rate": rates[0], "evaluation_masking_rate": EVALUATION_MASKING_RATE},
    )


def check_prediction_shift(recipe: Recipe) -> Diagnostic | None:
    """Check that the prediction is read at the masked position, as stock classes do."""
    last = recipe.objectives_of(len(recipe.phases) - 1).values()
    if not any(objective.prediction_shift for objective in last):
        return None
    return Diagnostic(
        "recipe.shift",
        "note",
        "training ends with predictions read one position before the masked one",
        "end with a phase whose masked.shift is 0: an exported model cannot fill masks otherwise",
    )


RECIPE_CHECKS: tuple[Callable[[Recipe], Diagnostic | None], ...] = (
    *OPTIMISER_CHECKS,
    check_batch,
    check_initialisation,
    check_embedding_table,
    check_positions,
    check_masking,
    check_evaluation_masking_rate,
    check_prediction_shift,
)


def _num_targets(recipe: Recipe, phase: int) -> float:
    """Return the predicted tokens per step at the end of a phase; 0 if nothing predicts tokens."""
    tokens, length = recipe.batch_tokens_at(phase, 1.0), recipe.input_format_of(phase).length
    masked = [selection.masking_rate.at(1.0) for _, selection in _masked_objectives(recipe, phase)]
    causal = [
        objective.targets_per_token(length)
        for objective in recipe.objectives_of(phase).values()
        if objective.capabilities.prediction == "causal"
    ]
    return tokens * max([*masked, *causal], default=0.0)


def _masked_objectives(recipe: Recipe, phase: int) -> list[tuple[Objective, MaskSelection]]:
    """Return the masked-token objectives of a phase that have a mask selection, with it."""
    return [
        (objective, objective.mask_selection)
        for objective in recipe.objectives_of(phase).values()
        if objective.capabilities.prediction == "masked" and objective.mask_selection is not None
    ]
