"""Texts and the texts to generate from them: two columns of a table, or two parallel files."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import LocatedLine, format_suffix, read_located_lines
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.labels import LabelKind
from bertwright.tasks.formats.tables import TableReader


class ParallelTextReader(TableReader):
    """Sources and targets in two columns of a table, or in two files line by line.

    In files, ``columns`` are the suffixes: with the columns ``en`` and ``de``, line n of
    ``train.de`` is the target of line n of ``train.en`` (both also ``.gz``).
    """

    kind: Literal["parallel-texts"] = "parallel-texts"  # type: ignore[assignment]
    label_kind: LabelKind = "text"

    def read(self, path: Path, with_labels: bool = True) -> list[Example]:
        columns = self.columns
        if format_suffix(path) != f".{columns.text.lower()}" or columns.label is None:
            return super().read(path, with_labels)
        if not with_labels:
            return [_example(location, line, None) for location, line in read_located_lines(path)]
        targets = _target_file(path, columns.text, columns.label)
        pairs = zip_longest(read_located_lines(path), read_located_lines(targets))
        examples = list(_read_pairs(pairs, path, targets))
        if not examples:
            raise UserError(f"{path} has no examples")
        return examples


def _read_pairs(
    pairs: "Iterator[tuple[LocatedLine | None, LocatedLine | None]]", sources: Path, targets: Path
) -> Iterator[Example]:
    """Yield an example for each pair of lines, except where both are empty."""
    for source, target in pairs:
        if source is None or target is None:
            longer, shorter = (sources, targets) if target is None else (targets, sources)
            raise UserError(
                f"{longer} has more lines than {shorter}: line n of both must belong together"
            )
        location, text = source
        if text.strip() or target[1].strip():
            if not text.strip() or not target[1].strip():
                empty = location if not text.strip() else target[0]
                raise UserError(f"{empty} is empty, and the other file has a text: remove both")
            yield _example(location, text, target[1].strip())


def _example(location: str, text: str, label: str | None) -> Example:
    return Example(text.strip(), label=label, location=location)


def _target_file(path: Path, source: str, target: str) -> Path:
    """Return the file with the suffix of the targets, plain or ``.gz``."""
    stem = path.name.removesuffix(path.suffix) if format_suffix(path) != path.suffix else path.name
    stem = stem[: -len(source)]
    candidates = [path.with_name(f"{stem}{target}{end}") for end in ("", ".gz")]
    for file in candidates:
        if file.is_file():
            return file
    raise UserError(f"{path}: there is no {candidates[0].name} beside it, with the targets")
