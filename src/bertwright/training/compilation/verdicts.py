"""What is known of compiled steps: whether those of a kind agree with the uncompiled ones."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from bertwright.machine.cache import recall, remember
from bertwright.machine.compiler import toolchain

FILE = "compiled_steps.json"


@dataclass(frozen=True)
class Verdict:
    """Whether the compiled step of a kind agrees with the uncompiled one, and how it differs."""

    agrees: bool
    difference: str = ""


class Verdicts:
    """Verdicts by kind of step: those of the cache folder, and of this run."""

    def __init__(self) -> None:
        self._known: dict[str, Verdict] = {}

    def of(self, kind: str) -> Verdict | None:
        """Return the verdict on a kind of step, None where there is none yet."""
        if kind not in self._known:
            entry = recall(FILE).get(kind)
            if not isinstance(entry, Mapping) or not isinstance(entry.get("agrees"), bool):
                return None
            self._known[kind] = Verdict(entry["agrees"], str(entry.get("difference", "")))
        return self._known[kind]

    def add(self, kind: str, verdict: Verdict) -> None:
        """Remember a verdict, in the cache folder with the versions that it holds for."""
        self._known[kind] = verdict
        remember(FILE, {kind: {**asdict(verdict), "holds_for": toolchain()}})
