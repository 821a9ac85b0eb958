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

MATCHED = "matched"
"""The development part whose texts are of the kinds that are trained on (Williams et al. 2018)."""


def find_part(folder: Path, part: Literal["train", "dev", "test"], word: str = "") -> Path:
    """What holds the training, the development or the test examples of a data folder.

    It is the one whose name has the word in it: ``train.tsv.gz``, ``en_ewt-ud-dev.conllu``; and
    ``word`` too, where one is given. Of several it is the one that is named by nothing else, as in
    MRPC, or else by ``matched``, as in MNLI. Errors: UserError when there is none, or there are
    more than one.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    named = {file: _words(file.name) for file in sorted(folder.iterdir())}
    wanted = {word} if word else set[str]()
    found = [f for f, words in named.items() if words & {*PARTS[part]} and wanted <= words]
    if len(found) > 1:
        plain = [f for f in found if _words(f.name.partition(".")[0]) <= {*PARTS[part], word}]
        found = plain or [f for f in found if MATCHED in named[f]] or found
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise UserError(f"{folder}: expected one file named after {part!r}, found {names}")
    return found[0]


def _words(name: str) -> set[str]:
    return set(re.split(r"[-_.]", name.lower()))
