"""The axis of readers: the file formats of examples."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import LocatedLine
from bertwright.tasks.formats.examples import Examples, TaskExample


class ExampleReader(Config):
    """The axis of readers; a custom reader subclasses this with a ``kind`` (see ``--plugin``)."""

    file_keyword: ClassVar[str] = ""
    """Word in the names of its files, besides the name of the split."""
    contents: ClassVar[str] = "examples"
    """The contents of a file, as named in messages."""

    @property
    def has_pairs(self) -> bool | None:
        """True if each example is a text pair; None if unknown."""
        return None

    def matches(self, lines: Sequence[LocatedLine], labels: Sequence[str]) -> bool:
        """Return whether lines have the layout of the training files, not one text per line."""
        return False

    def parse_lines(self, name: str, lines: Iterable[LocatedLine]) -> Examples:
        """Parse unlabelled lines for which :meth:`matches` is true; messages call them ``name``.

        Errors: UserError with the line.
        """
        raise TypeError(f"{type(self).__name__} does not parse lines")

    def read(self, path: Path, with_labels: bool = True) -> Examples:
        """Read the examples of a file, with or without their labels.

        Errors: UserError with file and line.
        """
        examples = list(self.iter_examples(path, with_labels))
        if not examples:
            raise UserError(f"{path} has no {self.contents}")
        return examples

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[TaskExample]:
        """Iterate over the examples of a file; subclasses implement this or :meth:`read`."""
        raise TypeError(f"{type(self).__name__} is an axis, not a reader")


class InMemoryReader(ExampleReader):
    """Placeholder for tasks without a file format: defined in Python, or imported."""

    kind: Literal["python"] = "python"

    def read(self, path: Path, with_labels: bool = True) -> Examples:
        raise UserError(
            f"{path}: the task of this model was defined in Python or imported, without a file "
            f"format: pass its examples in Python"
        )
