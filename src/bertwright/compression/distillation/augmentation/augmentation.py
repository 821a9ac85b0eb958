"""The axis of augmentations: how to vary texts into similar ones, which a teacher labels.

The random numbers of a copy depend only on the seed, the text and the number of the copy, not on
the order of texts or on other texts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import Field

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example, TaskExample


@dataclass(frozen=True)
class AugmentationInputs:
    """The inputs for building an augmentation.

    Attributes:
        texts: the training texts of the task, which can be iterated over more than once.
        mask_token: the teacher's mask token.
        augmenter: a masked language model; None if there is none.
    """

    texts: Iterable[str]
    mask_token: str
    augmenter: TextModel | None
    seed: int


AugmentationFunction = Callable[[Sequence[str]], list[list[str | None]]]
"""Returns the copies of each text, in order; None for a copy without any original word."""


class Augmentation(Config):
    """The axis of augmentations; every text gets ``num_copies`` copies.

    ``needs_augmenter`` is True for kinds that use a masked language model.
    """

    num_copies: int = Field(default=20, ge=1, le=65_536)
    needs_augmenter: ClassVar[bool] = False

    @property
    def inserts_masks(self) -> bool:
        """True if copies contain mask tokens, which the student's vocabulary must have."""
        return False

    def build(self, inputs: AugmentationInputs) -> AugmentationFunction:
        """Return the augmentation function; raise UserError if an input is missing."""
        raise TypeError(f"{type(self).__name__} is an axis, not an augmentation")

    def random_key(self, seed: int, text: str) -> int:
        """Return the key for the random numbers of a text."""
        return stream_key(seed, "augmentation", self.kind_name(), text)


PAIR_PATTERNS = ((True, False), (False, True), (True, True))
"""Texts of a pair that successive copies change (Tang et al. 2019)."""


def augment_examples(
    examples: Sequence[TaskExample], augment: AugmentationFunction
) -> Iterator[list[Example]]:
    """Yield the unlabelled copies of each example, without duplicates or the example itself.

    Copies of a pair change the first text, the second, or both. Raises UserError for an example
    that is not a text or a pair.
    """
    texts = [text for example in examples for text in augmentable_texts(example)]
    copies = dict(zip(texts, augment(texts), strict=True)) if texts else {}
    for example in examples:
        assert isinstance(example, Example)
        first, second = copies[example.text], copies.get(example.pair or "", [])
        pairs: dict[tuple[str, str | None], None] = {}
        for index, copy in enumerate(first):
            pair, (changes_text, changes_pair) = example.pair, (True, False)
            if pair is not None:
                changes_text, changes_pair = PAIR_PATTERNS[index % len(PAIR_PATTERNS)]
                pair = second[index] if changes_pair else pair
            text = copy if changes_text else example.text
            if text is not None and (pair is None) == (example.pair is None):
                pairs[text, pair] = None
        pairs.pop((example.text, example.pair), None)
        yield [replace(example, text=text, pair=pair, label=None) for text, pair in pairs]


def augmentable_texts(example: TaskExample) -> list[str]:
    """Return the one or two texts of an example; raise UserError for other kinds of examples."""
    if not isinstance(example, Example):
        raise UserError(
            "augmentation changes words, and with them the words that tags and spans refer to: "
            "leave it out for this task"
        )
    return [example.text] if example.pair is None else [example.text, example.pair]
