"""Atomic checkpoints with checksums; training resumes from the newest intact one.

``checkpoints/step-00001234/`` holds ``state.json``, one safetensors file per tensor group
(parameters, optimiser, callbacks) and ``manifest.json`` with the SHA-256 of each file, written
last. A folder is written under a temporary name, flushed and renamed, so a kill leaves the earlier
checkpoints intact. A folder with wrong checksums (broken disk, partial copy) is skipped.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from bertwright.core.files import atomic_folder, file_digests, loads_json
from bertwright.models.saving import read_tensors

MANIFEST_FILE = "manifest.json"

TensorGroups = Mapping[str, Mapping[str, Tensor]]
"""Named tensors by group: ``{"parameters": {...}, "optimiser": {...}}``."""


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint on disk."""

    path: Path
    step: int
    state: Mapping[str, Any]
    score: float | None

    def load_tensors(self, group: str) -> dict[str, Tensor]:
        """Return the tensors of one group on the CPU; an empty dict for an empty group.

        Errors: UserError if a tensor contains NaN or infinity.
        """
        file = self.path / f"{group}.safetensors"
        return read_tensors(file) if file.exists() else {}


class CheckpointManager:
    """The checkpoints of one run; keeps the last ``num_kept`` and the best one."""

    def __init__(self, folder: Path, num_kept: int = 2) -> None:
        self.folder = folder
        self.num_kept = num_kept

    def save(
        self, step: int, groups: TensorGroups, state: Mapping[str, Any], score: float | None
    ) -> Path:
        """Write one checkpoint, then delete the ones no longer needed.

        ``score`` (lower is better) is the latest evaluation score, None before the first one.
        Errors: UserError if the disk is full; earlier checkpoints are untouched.
        """
        path = self.folder / f"step-{step:08d}"
        if path.exists():
            shutil.rmtree(path)
        with atomic_folder(path) as temporary:
            for group, tensors in groups.items():
                if tensors:
                    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
                    save_file(contiguous, temporary / f"{group}.safetensors")
            (temporary / "state.json").write_text(json.dumps(dict(state), indent=1))
            manifest = {"step": step, "score": score, "files": _file_checksums(temporary)}
            (temporary / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1))
        self._delete_old()
        return path

    def load_newest(self) -> tuple[Checkpoint | None, list[Path]]:
        """Return the newest intact checkpoint, and the newer damaged ones."""
        damaged: list[Path] = []
        for path in reversed(self._paths()):
            checkpoint = open_checkpoint(path)
            if checkpoint is not None:
                return checkpoint, damaged
            damaged.append(path)
        return None, damaged

    def _paths(self) -> list[Path]:
        paths = [p for p in self.folder.glob("step-*") if re.fullmatch(r"step-\d{8,}", p.name)]
        return sorted(paths, key=lambda path: int(path.name.removeprefix("step-")))

    def _delete_old(self) -> None:
        paths = self._paths()
        scores = {path: score for path in paths if (score := _read_score(path)) is not None}
        best = min(scores, key=lambda path: scores[path]) if scores else None
        for path in paths[: -self.num_kept]:
            if path != best:
                shutil.rmtree(path)


def callback_group(name: str) -> str:
    """Return the group with the state of the callback of this name."""
    return f"callback-{name}"


def open_checkpoint(path: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder; None if damaged or missing."""
    try:
        manifest = loads_json((path / MANIFEST_FILE).read_text())
        state = loads_json((path / "state.json").read_text())
        if _file_checksums(path) != manifest["files"]:
            return None
    except (OSError, ValueError, KeyError):
        return None
    return Checkpoint(path, manifest["step"], state, manifest["score"])


def _read_score(path: Path) -> float | None:
    try:
        return loads_json((path / MANIFEST_FILE).read_text())["score"]
    except (OSError, ValueError, KeyError):
        return None


def _file_checksums(folder: Path) -> dict[str, str]:
    digests = {Path(name).name: digest for name, digest in file_digests(folder).items()}
    digests.pop(MANIFEST_FILE, None)
    return digests
