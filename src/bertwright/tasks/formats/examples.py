"""Examples of tasks, one class for each shape of input."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertwright.core.errors import UserError


@dataclass(frozen=True)
class Example:
    """A text or a text pair, with its label.

    Attributes:
        label: its class, number, or tuple of classes; None if unknown.
        negatives: texts that do not match ``text``, for tasks that compare texts.
        location: file and line, for messages.
    """

    text: str
    pair: str | None = None
    label: str | float | tuple[str, ...] | None = None
    negatives: tuple[str, ...] = ()
    location: str = field(default="", compare=False, repr=False)

    @property
    def texts(self) -> tuple[str | None, ...]:
        return self.text, self.pair


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a sentence and a tag for each; ``tags`` is None if unknown."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    location: str = field(default="", compare=False, repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.words)


@dataclass(frozen=True)
class ExtractiveQuestion:
    """A question whose answer is a span of a text.

    Attributes:
        answers: every correct answer; () if the text has none, None if unknown.
        starts: start of each answer in the text, in characters.
        id: identifier in files.
    """

    question: str
    text: str
    answers: tuple[str, ...] | None = None
    starts: tuple[int, ...] = ()
    id: str = ""
    location: str = field(default="", compare=False, repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.question, self.text


@dataclass(frozen=True)
class MultipleChoice:
    """A text and options to continue it, one of them correct.

    Attributes:
        text: the text shared by all options.
        question: precedes every option; "" for no question.
        label: index of the correct option; None if unknown.
    """

    text: str
    options: tuple[str, ...]
    question: str = ""
    label: int | None = None
    location: str = field(default="", compare=False, repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.text, self.question, *self.options


TaskExample = Example | TaggedSentence | ExtractiveQuestion | MultipleChoice
Examples = Sequence[TaskExample]


def require_texts(example: TaskExample) -> None:
    """Raise UserError for a text of an example that is none, such as a missing value."""
    texts: list[Any] = [*example.texts]
    if isinstance(example, Example):
        texts = [example.text, *texts[1:][: example.pair is not None], *example.negatives]
    if invalid := [text for text in texts if not isinstance(text, str)]:
        raise UserError(
            f"{example.location or 'an example'}: {invalid[0]!r} stands where a text is needed: "
            f"give a text, or leave the example out"
        )
