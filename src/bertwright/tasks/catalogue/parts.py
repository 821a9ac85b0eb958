"""Which file of a data folder is which part."""

import re
from pathlib import Path
from typing import Literal

from bertwright.errors import UserError

PARTS = {
    "train": ("train",),
    "dev": ("dev", "valid", "validation", "val"),
    "test": ("test",),
}


def find_part(folder: Path, part: Literal["train", "dev", "test"], word: str = "") -> Path:
    """What holds the training, the development or the test examples of a data folder.

    It is the one whose name has the word in it: ``train.tsv.gz``, ``en_ewt-ud-dev.conllu``; and
    ``word`` too, where one is given. Errors: UserError when there is none, or more than one.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    found = [file for file in sorted(folder.iterdir()) if _is(file, PARTS[part], word)]
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise UserError(f"{folder}: expected one file named after {part!r}, found {names}")
    return found[0]


def _is(file: Path, words: tuple[str, ...], word: str) -> bool:
    parts = set(re.split(r"[-_.]", file.name.lower()))
    return bool(parts & set(words)) and (not word or word in parts)
