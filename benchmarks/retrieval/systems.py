"""The indexes that are compared: BM25, and for each model those that its vectors allow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.retrieval.settings import IndexKind

STOP_WORDS = "en"


@dataclass(frozen=True)
class System:
    """A kind of index with its settings, and the folder of its model, if it has one."""

    name: str
    kind: IndexKind
    model: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def words(self) -> list[str]:
        """Return the options of ``bertwright index``."""
        options = ["--kind", self.kind]
        if self.model is not None:
            options += ["--model", str(self.model)]
        for name, value in self.settings.items():
            options += [f"--{name.replace('_', '-')}", str(value)]
        return options


def systems_of(models: Sequence[Path], with_variants: bool = True) -> list[System]:
    """Return BM25 and a system for each model; the variants are its vectors in int8, and hybrid.

    Errors: UserError for two models of one name.
    """
    bm25 = {"stop_words": STOP_WORDS}
    systems = [System("BM25", "bm25", None, bm25)]
    for folder in models:
        kind = load(folder).retrieval_encoder().representation
        name = folder.resolve().name
        if any(system.name.startswith(f"{name}, ") for system in systems):
            raise UserError(f"two models are called {name}: rename a folder")
        systems.append(System(f"{name}, {kind}", kind, folder))
        if with_variants:
            systems += [
                System(f"{name}, {kind} int8", kind, folder, {"vector_type": "int8"}),
                System(f"{name}, hybrid", "hybrid", folder, bm25),
            ]
    return systems
