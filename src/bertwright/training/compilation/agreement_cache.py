"""A cache of the agreement of compiled step variants with uncompiled steps."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from bertwright.core.cache_folder import read_cache, update_cache
from bertwright.runtime.compiler import toolchain

CACHE_FILE = "compiled_steps.json"


@dataclass(frozen=True)
class StepAgreement:
    """The agreement of a compiled step with the uncompiled one, or their difference."""

    agrees: bool
    difference: str = ""


class AgreementCache:
    """Agreements by step variant, from the cache folder and from this run."""

    def __init__(self) -> None:
        self._agreements: dict[str, StepAgreement] = {}

    def get(self, variant: str) -> StepAgreement | None:
        """Return the agreement of a step variant; None if it is not known."""
        if variant not in self._agreements:
            entry = read_cache(CACHE_FILE).get(variant)
            if not isinstance(entry, Mapping) or not isinstance(entry.get("agrees"), bool):
                return None
            self._agreements[variant] = StepAgreement(
                entry["agrees"], str(entry.get("difference", ""))
            )
        return self._agreements[variant]

    def add(self, variant: str, agreement: StepAgreement) -> None:
        """Save an agreement, in the cache folder together with the toolchain versions."""
        self._agreements[variant] = agreement
        update_cache(CACHE_FILE, {variant: {**asdict(agreement), "toolchain": toolchain()}})
