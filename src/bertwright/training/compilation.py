"""Whether to compile: a run pays for the cold start, or it does not."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bertwright.model.counting import arithmetic, training_arithmetic
from bertwright.recipes import Recipe

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
    recipe: Recipe, vocabulary_size: int, kind: str, peak: float, budget: float | None
) -> bool:
    """Whether compiled steps win back the time that compiling takes.

    ``kind`` is that of the device, ``peak`` its operations per second, ``budget`` the seconds
    given, None for a number of steps.
    """
    steps = STEPS[kind]
    operations = training_arithmetic(recipe, vocabulary_size)
    eager_seconds = operations / (steps.peak_share * peak) if budget is None else budget
    further = len(_kinds_of_step(recipe)) - 1
    won = (1 - steps.compiled_share) * eager_seconds
    cold = COLD_SECONDS + further * NEXT_COLD_SECONDS
    warm = WARM_SECONDS + further * NEXT_WARM_SECONDS
    # Where the cache is, the compiler knows, and it takes seconds to import: asked last.
    return won > cold or (won > warm and _marker(recipe, vocabulary_size).exists())


def remember(recipe: Recipe, vocabulary_size: int) -> None:
    """Note beside the compiler's cache that it knows the graphs of a recipe."""
    marker = _marker(recipe, vocabulary_size)
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()


def operations_per_token(recipe: Recipe, vocabulary_size: int) -> list[float]:
    """Floating-point operations of a training step per token, by phase."""
    phases = range(len(recipe.phases))
    return [arithmetic(recipe, phase, vocabulary_size).training for phase in phases]


def _kinds_of_step(recipe: Recipe) -> set[str]:
    """What steps differ in as compiled graphs: lengths, batches, who may see whom, what is dropped
    and what is trained."""
    kinds: set[str] = set()
    for phase in range(len(recipe.phases)):
        own = recipe.phases[phase]
        size = f"{recipe.assembly_of(phase).length} {recipe.batch_tokens_at(phase, 1.0)}"
        size = f"{size} {own.dropout!r} {own.trained}"
        kinds |= {f"{size} {turn.visibility!r}" for turn in recipe.turns_of(phase)}
    return kinds


def _marker(recipe: Recipe, vocabulary_size: int) -> Path:
    import torch
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    deciding = recipe.model_dump(
        mode="json", include={"encoder", "output", "objectives", "assembly", "precision"}
    )
    known = [deciding, sorted(_kinds_of_step(recipe)), vocabulary_size, torch.__version__]
    name = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
    return Path(cache_dir()) / "bertwright" / name
