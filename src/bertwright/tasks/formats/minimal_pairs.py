"""Minimal pairs in the layout of BLiMP (Warstadt et al. 2020): JSON lines, one pair on each."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.formats.lines import json_object, read_lines

_GOOD, _BAD = "sentence_good", "sentence_bad"


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ as little as can be, one of them acceptable."""

    good: str
    bad: str
    paradigm: str
    """What the difference is an example of; the name of the file where the pair does not say."""


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """The pairs of a file (``.jsonl`` or ``.jsonl.gz``), or of all such files of a folder.

    Errors: UserError, naming file, line and key.
    """
    files = sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
    pairs = [
        _pair(file, number, line)
        for file in files
        for number, line in read_lines(file)
        if line.strip()
    ]
    if not pairs:
        raise UserError(f"{path} holds no minimal pairs")
    return pairs


def first_of_each(pairs: Iterable[MinimalPair], most: int) -> list[MinimalPair]:
    """The first pairs of every paradigm, so many at most."""
    seen: Counter[str] = Counter()
    found: list[MinimalPair] = []
    for pair in pairs:
        seen[pair.paradigm] += 1
        if seen[pair.paradigm] <= most:
            found.append(pair)
    return found


def _pair(file: Path, number: int, line: str) -> MinimalPair:
    where = f"{file} line {number}"
    row = json_object(where, line)
    for key in (_GOOD, _BAD):
        if key not in row:
            raise UserError(f"{where}: no key {key!r}{did_you_mean(key, row)}")
        if not isinstance(row[key], str):
            raise UserError(f"{where}: {key} is no text: {row[key]!r}")
    return MinimalPair(row[_GOOD], row[_BAD], str(row.get("UID", file.name.split(".")[0])))
