"""The axis of readers: how the examples of a task stand in a file."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from bertwright.axes import Choice
from bertwright.errors import UserError
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.formats.lines import Line


class Reader(Choice):
    """The axis. A reader of one's own is a subclass with a ``kind``, in a file that is imported
    with ``--plugin``."""

    file_word: ClassVar[str] = ""
    """A word in the names of its files, beside that of the part."""

    @property
    def pairs(self) -> bool | None:
        """Whether each of its examples is two texts; None where that is not known."""
        return None

    def claims(self, lines: Sequence[Line], labels: Sequence[str]) -> bool:
        """Return whether a text that begins with these lines has the layout of the files that a
        model with these labels was trained on, and is no text on each line."""
        return False

    def parse(self, name: str, lines: Iterable[Line]) -> Examples:
        """Return the examples of a text that :meth:`claims` was asked of, without labels; messages
        call it ``name``.

        Errors: UserError, naming the line.
        """
        raise TypeError(f"{type(self).__name__} claims no lines")

    def read(self, path: Path, labelled: bool = True) -> Examples:
        """The examples of a file; without their labels where these are not wanted.

        Errors: UserError, naming file and line.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not a reader")


class InPython(Reader):
    """Examples that were made in Python, which no file has."""

    kind: Literal["python"] = "python"

    def read(self, path: Path, labelled: bool = True) -> Examples:
        raise UserError(
            f"{path}: the examples of this task were made in Python: hand them over there as well"
        )
