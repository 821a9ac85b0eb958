"""The axis of augmentations: how a text is changed into others, for a teacher to answer.

What is drawn for a copy of a text follows from the seed, the text and the number of the copy, and
from nothing else: neither from the order of texts nor from what stands beside them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from pydantic import Field

from bertwright.axes import Choice
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.randomness import key
from bertwright.tasks.formats.examples import AnyExample, Example

Texts = Iterable[str]


@dataclass(frozen=True)
class Given:
    """What texts can be changed with.

    Attributes:
        texts: those of the training examples of the task; they can be read more than once.
        hidden: what stands for a word that is hidden, as the teacher reads it.
        namer: a model that names the words of hidden places, None where there is none.
    """

    texts: Texts
    hidden: str
    namer: TextModel | None
    seed: int


class Augmenter(Protocol):
    """Changes texts."""

    def __call__(self, texts: Sequence[str]) -> list[list[str | None]]:
        """The copies of each text in their order; None where nothing of a text would be left."""
        ...


class Augmentation(Choice):
    """The axis; ``copies`` are made of every text, where it ``asks_namer`` by a model that names
    words."""

    copies: int = Field(default=20, ge=1, le=65_536)
    asks_namer: ClassVar[bool] = False

    @property
    def hides(self) -> bool:
        """Whether words are hidden, for which a student must have a piece."""
        return False

    def augmenter(self, given: Given) -> Augmenter:
        """What makes them; UserError where something is missing."""
        raise TypeError(f"{type(self).__name__} is an axis, not an augmentation")

    def draws(self, seed: int, text: str) -> int:
        """The key of the random numbers of a text."""
        return key(seed, "augmentation", self.own_kind(), text)


PAIR = ((True, False), (False, True), (True, True))
"""Which texts of a pair copies change, by turns (Tang et al. 2019)."""


def augmented(examples: Sequence[AnyExample], augmenter: Augmenter) -> Iterator[list[Example]]:
    """Of each example the copies, without labels, each different from it and from those before; of
    a pair the first text is changed, the second, or both.

    Errors: UserError for an example that is no text.
    """
    texts = [text for own in examples for text in texts_of(own)]
    copies = dict(zip(texts, augmenter(texts), strict=True)) if texts else {}
    for example in examples:
        assert isinstance(example, Example)
        first, second = copies[example.first], copies.get(example.second or "", [])
        found: dict[tuple[str, str | None], None] = {}
        for number, changed in enumerate(first):
            other, turns = example.second, (True, False)
            if other is not None:
                turns = PAIR[number % len(PAIR)]
                other = second[number] if turns[1] else other
            own = changed if turns[0] else example.first
            if own is not None and (other is None) == (example.second is None):
                found[own, other] = None
        found.pop((example.first, example.second), None)
        yield [replace(example, first=a, second=b, label=None) for a, b in found]


def texts_of(example: AnyExample) -> list[str]:
    """The one or two of an example; UserError where it is something else."""
    if not isinstance(example, Example):
        raise UserError(
            "augmentation changes the words of texts, and with them what a tag or a span belongs "
            "to: leave it out for this task"
        )
    return [example.first] if example.second is None else [example.first, example.second]
