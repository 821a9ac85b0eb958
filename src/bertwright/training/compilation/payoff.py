"""Estimate whether compiling the steps of a run pays off."""

from dataclasses import dataclass

from bertwright.models.costs import flops_per_token as phase_flops_per_token
from bertwright.models.costs import training_flops
from bertwright.recipes import Recipe
from bertwright.training.compilation.step_variants import StepVariants

COLD_CACHE_SECONDS, WARM_CACHE_SECONDS = 40.0, 8.0
"""Seconds for the first compiled step, without and with the compiler's cache."""

NEXT_COLD_CACHE_SECONDS, NEXT_WARM_CACHE_SECONDS = 15.0, 3.0
"""Seconds for each further step variant, such as another length or visibility."""


@dataclass(frozen=True)
class StepSpeed:
    """FLOPs utilisation of eager steps, and the relative duration of compiled steps."""

    flops_utilisation: float
    compiled_time_fraction: float


STEP_SPEEDS = {"cpu": StepSpeed(0.4, 0.85), "cuda": StepSpeed(0.2, 0.5)}
"""Measured on a CPU (Zen 4, bf16, BERT and modern, tiny: 0.77 to 0.83; mini: 0.86 to 0.90).

The values for GPUs, where small kernels wait for their launch, are estimates.
"""


def compilation_pays_off(
    recipe: Recipe,
    variants: StepVariants,
    vocab_size: int,
    device_type: str,
    peak_flops: float,
    budget_seconds: float | None,
) -> bool:
    """Return whether compiled steps save more time than compiling takes.

    ``peak_flops`` is per second; ``budget_seconds`` is None for a fixed number of steps.
    """
    speed = STEP_SPEEDS[device_type]
    flops = training_flops(recipe, vocab_size)
    eager_seconds = (
        flops / (speed.flops_utilisation * peak_flops) if budget_seconds is None else budget_seconds
    )
    saved_seconds = (1 - speed.compiled_time_fraction) * eager_seconds
    cold_seconds = COLD_CACHE_SECONDS + (len(variants) - 1) * NEXT_COLD_CACHE_SECONDS
    # The cache state comes last: it imports the compiler, which takes seconds.
    return saved_seconds > cold_seconds or (
        saved_seconds > warm_cache_seconds(variants) and variants.is_cache_warm()
    )


def warm_cache_seconds(variants: StepVariants) -> float:
    """Return the seconds to load the graphs of the first steps from the compiler's cache."""
    return WARM_CACHE_SECONDS + (len(variants) - 1) * NEXT_WARM_CACHE_SECONDS


def flops_per_token(recipe: Recipe, vocab_size: int) -> list[float]:
    """Return the training FLOPs per token of each phase."""
    phases = range(len(recipe.phases))
    return [phase_flops_per_token(recipe, phase, vocab_size).training for phase in phases]
