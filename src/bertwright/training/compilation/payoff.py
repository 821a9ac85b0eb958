"""Whether to compile: a run pays for the cold start, or it does not."""

from dataclasses import dataclass

from bertwright.model.counting import arithmetic, training_arithmetic
from bertwright.recipes import Recipe
from bertwright.training.compilation.kinds import StepKinds

COLD_SECONDS, WARM_SECONDS = 40.0, 8.0
"""What the first compiled step takes without and with the compiler's own cache."""

NEXT_COLD_SECONDS, NEXT_WARM_SECONDS = 15.0, 3.0
"""The same for each further kind of step: another length or another visibility."""


@dataclass(frozen=True)
class Steps:
    """Of eager steps the share of the matrix peak that they reach, and of their time the share that
    compiled ones take."""

    peak_share: float
    compiled_share: float


STEPS = {"cpu": Steps(0.4, 0.85), "cuda": Steps(0.2, 0.5)}
"""On a CPU as measured (Zen 4, bf16, BERT and modern, tiny: 0.77 to 0.83; mini: 0.86 to 0.90); on a
card, where small kernels wait for their launch, a judgement."""


def repays(
    recipe: Recipe,
    kinds: StepKinds,
    vocabulary_size: int,
    device_kind: str,
    peak: float,
    budget: float | None,
) -> bool:
    """Return whether compiled steps win back the time that compiling takes.

    ``peak`` is the device's operations per second, ``budget`` the seconds of the run, None for a
    number of steps.
    """
    steps = STEPS[device_kind]
    operations = training_arithmetic(recipe, vocabulary_size)
    eager_seconds = operations / (steps.peak_share * peak) if budget is None else budget
    further = len(kinds) - 1
    won = (1 - steps.compiled_share) * eager_seconds
    cold = COLD_SECONDS + further * NEXT_COLD_SECONDS
    # Where the cache is, the compiler knows, and it takes seconds to import: asked last.
    return won > cold or (won > warm_seconds(kinds) and kinds.are_warm())


def warm_seconds(kinds: StepKinds) -> float:
    """Return the seconds in which the first steps load their graphs from the compiler's cache."""
    return WARM_SECONDS + (len(kinds) - 1) * NEXT_WARM_SECONDS


def operations_per_token(recipe: Recipe, vocabulary_size: int) -> list[float]:
    """Floating-point operations of a training step per token, by phase."""
    phases = range(len(recipe.phases))
    return [arithmetic(recipe, phase, vocabulary_size).training for phase in phases]
