"""Find the split files of a data folder."""

import re
from pathlib import Path
from typing import Literal

from bertwright.core.errors import UserError

SplitName = Literal["train", "dev", "test"]

SPLIT_NAMES: dict[SplitName, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "valid", "validation", "val"),
    "test": ("test",),
}

MATCHED = "matched"
"""The development split of MNLI from the training genres (Williams et al. 2018)."""


def find_split_file(folder: Path, split: SplitName, keyword: str = "") -> Path:
    """Return the file of a split in a data folder.

    Its name contains the split, and ``keyword`` if given: ``train.tsv.gz``,
    ``en_ewt-ud-dev.conllu``. If several files match, the one without any other word in its name is
    used (MRPC), or else the one with ``matched`` (MNLI). Errors: UserError if no file or several
    files remain.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    words_of = {file: _name_words(file.name) for file in sorted(folder.iterdir())}
    split_names = {*SPLIT_NAMES[split]}
    files = [
        file
        for file, words in words_of.items()
        if words & split_names and (not keyword or keyword in words)
    ]
    if len(files) > 1:
        plain = [
            file
            for file in files
            if _name_words(file.name.partition(".")[0]) <= {*split_names, keyword}
        ]
        files = plain or [file for file in files if MATCHED in words_of[file]] or files
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise UserError(f"{folder}: expected one file named after {split!r}, got {names}")
    return files[0]


def split_of(name: str) -> SplitName | None:
    """Return the split that a name such as ``validation_matched`` contains, if any."""
    words = _name_words(name)
    return next((split for split, names in SPLIT_NAMES.items() if words & {*names}), None)


def _name_words(name: str) -> set[str]:
    return set(re.split(r"[-_.]", name.lower()))
