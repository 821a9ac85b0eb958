"""Step variants of a run; each has a compiled graph."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bertwright.core.config import Precision
from bertwright.objectives.schedule import group_at_step
from bertwright.recipes import Recipe
from bertwright.runtime.compiler import toolchain
from bertwright.training.clock import Progress

MAX_SCHEDULE_STEPS = 1000
"""Steps within which every objective group of a phase is expected to occur."""


class StepVariants:
    """The step variants of a recipe.

    They differ in length, batch size, visibility, dropout, objectives and trainable layers. The
    generated code uses ``threads`` threads.
    """

    def __init__(self, recipe: Recipe, vocab_size: int, precision: Precision, threads: int) -> None:
        self._recipe = recipe
        axes = recipe.model_dump(
            mode="json", include={"encoder", "decoder", "output", "objectives", "assembly"}
        )
        optimiser = recipe.optimiser.kind  # type: ignore[attr-defined]
        self._graph_description = json.dumps(
            [axes, optimiser, vocab_size, precision, threads], sort_keys=True
        )
        self._keys: dict[tuple[int, int], str] = {}

    def key(self, progress: Progress) -> str:
        """Return the variant of a step: a fingerprint of its graph and the toolchain."""
        phase = progress.phase
        groups = self._recipe.objective_schedule(phase)
        group = groups.index(group_at_step(groups, self._recipe.seed, progress.step))
        if (phase, group) not in self._keys:
            variant = self._describe(phase, group)
            text = f"{self._graph_description}\n{variant}\n{toolchain()}"
            self._keys[phase, group] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._keys[phase, group]

    def representatives(self) -> Iterator[Progress]:
        """Yield one step of every variant, in the order of the phases."""
        fractions = [phase.fraction for phase in self._recipe.phases]
        known_keys: set[str] = set()
        for phase in range(len(fractions)):
            start = sum(fractions[:phase]) / sum(fractions)
            num_groups = len(self._recipe.objective_schedule(phase))
            for step in range(MAX_SCHEDULE_STEPS if num_groups > 1 else 1):
                progress = Progress(step, start, phase, 0.0, 0, start)
                if (key := self.key(progress)) not in known_keys:
                    known_keys.add(key)
                    yield progress

    def __len__(self) -> int:
        return len(
            {
                self._describe(phase, group)
                for phase in range(len(self._recipe.phases))
                for group in range(len(self._recipe.objective_schedule(phase)))
            }
        )

    def mark_cache_warm(self) -> None:
        """Mark the compiler's cache as holding the graphs of these variants."""
        with suppress(OSError):
            marker = self._cache_marker()
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()

    def is_cache_warm(self) -> bool:
        """Return whether the compiler's cache holds the graphs of these variants."""
        with suppress(OSError):
            return self._cache_marker().exists()
        return False

    def _cache_marker(self) -> Path:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        keys = "\n".join(self.key(progress) for progress in self.representatives())
        name = hashlib.sha256(keys.encode()).hexdigest()[:16]
        return Path(cache_dir()) / "bertwright" / name

    def _describe(self, phase: int, objective_group: int) -> str:
        recipe, settings = self._recipe, self._recipe.phases[phase]
        size = f"{recipe.input_format_of(phase).length} {recipe.batch_tokens_at(phase, 1.0)}"
        group = recipe.objective_schedule(phase)[objective_group]
        objectives = sorted(group.objectives.items())
        return (
            f"{size} {settings.dropout!r} {settings.trainable_layers} {group.visibility!r} "
            f"{objectives!r}"
        )
