"""The kinds of steps of a run: what a compiled graph is made for."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bertwright.axes import Precision
from bertwright.machine.compiler import toolchain
from bertwright.objectives.turns import turn_at
from bertwright.recipes import Recipe
from bertwright.training.clock import Place

MOST_STEPS = 1000
"""Steps within which every turn of a phase is expected to come up."""


class StepKinds:
    """The kinds of steps of a recipe: they differ in length, batch, visibility, dropout, and in
    what is trained.

    ``threads`` is the number of threads that code is generated for.
    """

    def __init__(
        self, recipe: Recipe, vocabulary_size: int, precision: Precision, threads: int
    ) -> None:
        self._recipe = recipe
        deciding = recipe.model_dump(
            mode="json", include={"encoder", "decoder", "output", "objectives", "assembly"}
        )
        optimiser = recipe.optimiser.kind  # type: ignore[attr-defined]
        self._graph = json.dumps(
            [deciding, optimiser, vocabulary_size, precision, threads], sort_keys=True
        )
        self._names: dict[tuple[int, int], str] = {}

    def at(self, place: Place) -> str:
        """Return the name of the kind of step at a place: a fingerprint of its graph and of
        everything that compiles it."""
        phase = place.phase
        turns = self._recipe.turns_of(phase)
        turn = turns.index(turn_at(turns, self._recipe.seed, place.step))
        if (phase, turn) not in self._names:
            kind = self._described(phase, turn)
            text = f"{self._graph}\n{kind}\n{toolchain()}"
            self._names[phase, turn] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self._names[phase, turn]

    def places(self) -> Iterator[Place]:
        """Yield a place of every kind, in the order of the phases."""
        shares = [phase.share for phase in self._recipe.phases]
        seen: set[str] = set()
        for phase in range(len(shares)):
            progress = sum(shares[:phase]) / sum(shares)
            turns = len(self._recipe.turns_of(phase))
            for step in range(MOST_STEPS if turns > 1 else 1):
                place = Place(step, progress, phase, 0.0, 0, progress)
                if (name := self.at(place)) not in seen:
                    seen.add(name)
                    yield place

    def __len__(self) -> int:
        return len(
            {
                self._described(phase, turn)
                for phase in range(len(self._recipe.phases))
                for turn in range(len(self._recipe.turns_of(phase)))
            }
        )

    def note_warm(self) -> None:
        """Note beside the compiler's cache that it holds the graphs of these kinds."""
        with suppress(OSError):
            marker = self._marker()
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()

    def are_warm(self) -> bool:
        """Return whether the compiler's cache holds the graphs of these kinds."""
        with suppress(OSError):
            return self._marker().exists()
        return False

    def _marker(self) -> Path:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        names = "\n".join(self.at(place) for place in self.places())
        name = hashlib.sha256(names.encode()).hexdigest()[:16]
        return Path(cache_dir()) / "bertwright" / name

    def _described(self, phase: int, turn: int) -> str:
        recipe, settings = self._recipe, self._recipe.phases[phase]
        size = f"{recipe.assembly_of(phase).length} {recipe.batch_tokens_at(phase, 1.0)}"
        together = recipe.turns_of(phase)[turn]
        objectives = sorted(together.objectives.items())
        visibility = together.visibility
        return f"{size} {settings.dropout!r} {settings.trained} {visibility!r} {objectives!r}"
