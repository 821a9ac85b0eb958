"""What a file of examples holds, one class for each shape that a task can have."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Example:
    """A text, or a pair of texts, and what is known of it.

    Attributes:
        label: its class, its number, or all of its classes where it may have several; None where
            nothing is known.
        others: texts that are no partner of the first, for tasks that bring texts together.
        where: file and line, for messages.
    """

    first: str
    second: str | None = None
    label: str | float | tuple[str, ...] | None = None
    others: tuple[str, ...] = ()
    where: str = field(default="", compare=False, repr=False)

    @property
    def read(self) -> tuple[str | None, ...]:
        """What is read of it, whatever is known."""
        return self.first, self.second


@dataclass(frozen=True)
class TaggedWords:
    """The words of a sentence and a tag for each (None where they are not known)."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    where: str = field(default="", compare=False, repr=False)

    @property
    def read(self) -> tuple[str, ...]:
        """What is read of it, whatever is known."""
        return self.words


@dataclass(frozen=True)
class Question:
    """A question whose answer is a span of a text.

    Attributes:
        answers: every wording that counts as right, () where the text has no answer, None where
            nothing is known.
        starts: the character at which each answer begins.
        identity: by which answers are told apart in files.
    """

    question: str
    text: str
    answers: tuple[str, ...] | None = None
    starts: tuple[int, ...] = ()
    identity: str = ""
    where: str = field(default="", compare=False, repr=False)

    @property
    def read(self) -> tuple[str, ...]:
        """What is read of it, whatever is known."""
        return self.question, self.text


@dataclass(frozen=True)
class Options:
    """Something to be gone on with, and the ways to do it, of which one is right.

    Attributes:
        first: the text that all options share.
        question: what stands before every option, "" where nothing does.
        label: the index of the right option, None where nothing is known.
    """

    first: str
    options: tuple[str, ...]
    question: str = ""
    label: int | None = None
    where: str = field(default="", compare=False, repr=False)

    @property
    def read(self) -> tuple[str, ...]:
        """What is read of it, whatever is known."""
        return self.first, self.question, *self.options


AnyExample = Example | TaggedWords | Question | Options
Examples = Sequence[AnyExample]
