"""Checkpoints: folders that are whole or not there, and the newest whole one is used.

``checkpoints/step-00001234/`` holds ``state.json``, one safetensors file for each group of tensors
(parameters, optimiser, procedures) and ``manifest.json`` with the SHA-256 of each file, written
last. A folder is written under a temporary name, flushed and renamed, so a kill leaves the previous
ones as they were; a folder that a broken disk or a copy cut short fails its checksums and is passed
over.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from bertwright.files import atomic_folder, json_value
from bertwright.model.folder import read_tensors

Groups = Mapping[str, Mapping[str, Tensor]]
"""Named tensors by group: ``{"parameters": {...}, "optimiser": {...}}``."""


@dataclass(frozen=True)
class Checkpoint:
    """One whole checkpoint on the disk."""

    path: Path
    step: int
    state: Mapping[str, Any]
    score: float | None

    def tensors(self, group: str) -> dict[str, Tensor]:
        """Return the tensors of one group, on the CPU; none when the group was empty.

        Errors: UserError where one holds NaN or infinity.
        """
        file = self.path / f"{group}.safetensors"
        return read_tensors(file) if file.exists() else {}


class Checkpoints:
    """The checkpoints of one run: the last ``keep`` of them and the best are kept.

    ``score`` (lower is better) is that of the evaluation at or before the checkpoint, None while
    there was none.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def write(
        self, step: int, groups: Groups, state: Mapping[str, Any], score: float | None
    ) -> Path:
        """Write one checkpoint, then drop those that need not be kept.

        Errors: UserError when the disk is full; the checkpoints before it are untouched.
        """
        path = self.folder / f"step-{step:08d}"
        if path.exists():
            shutil.rmtree(path)
        with atomic_folder(path) as temporary:
            for group, tensors in groups.items():
                if tensors:
                    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
                    save_file(whole, temporary / f"{group}.safetensors")
            (temporary / "state.json").write_text(json.dumps(dict(state), indent=1))
            manifest = {"step": step, "score": score, "files": _checksums(temporary)}
            (temporary / "manifest.json").write_text(json.dumps(manifest, indent=1))
        self._prune()
        return path

    def newest(self) -> tuple[Checkpoint | None, list[Path]]:
        """The newest whole checkpoint, and the newer ones that are damaged."""
        damaged: list[Path] = []
        for path in reversed(self._paths()):
            checkpoint = open_whole(path)
            if checkpoint is not None:
                return checkpoint, damaged
            damaged.append(path)
        return None, damaged

    def _paths(self) -> list[Path]:
        named = re.compile(r"step-\d{8,}")
        found = [p for p in self.folder.glob("step-*") if named.fullmatch(p.name)]
        return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))

    def _prune(self) -> None:
        paths = self._paths()
        scores = {path: score for path in paths if (score := _score(path)) is not None}
        best = min(scores, key=lambda path: scores[path]) if scores else None
        for path in paths[: -self.keep]:
            if path != best:
                shutil.rmtree(path)


def open_whole(path: Path) -> Checkpoint | None:
    """The checkpoint in a folder; None where it is damaged, or none."""
    try:
        manifest = json_value((path / "manifest.json").read_text())
        state = json_value((path / "state.json").read_text())
        if _checksums(path) != manifest["files"]:
            return None
    except (OSError, ValueError, KeyError):
        return None
    return Checkpoint(path, manifest["step"], state, manifest["score"])


def _score(path: Path) -> float | None:
    try:
        return json_value((path / "manifest.json").read_text())["score"]
    except (OSError, ValueError, KeyError):
        return None


def _checksums(folder: Path) -> dict[str, str]:
    sums: dict[str, str] = {}
    for file in sorted(folder.iterdir()):
        if file.name != "manifest.json":
            with open(file, "rb") as opened:
                sums[file.name] = hashlib.file_digest(opened, "sha256").hexdigest()
    return sums
