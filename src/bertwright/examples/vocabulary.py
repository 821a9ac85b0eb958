"""What a question needs to know of the vocabulary."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertwright.text.tokenizers import Specials


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How many pieces there are, and which of them stand for no text."""

    size: int
    specials: "Specials"
