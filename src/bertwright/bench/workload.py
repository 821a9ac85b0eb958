"""What every contestant computes: the same pieces, hidden at the same places.

The pieces are drawn at random: the time of a step does not depend on what they say.
"""

from dataclasses import dataclass

import numpy as np

from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.vocabulary import Vocabulary
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Asking
from bertwright.randomness import Draw, integers, key
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

VOCABULARY_SIZE = 30_522
SPECIALS = Specials(pad=0, unknown=100, start=101, end=102, mask=103)
"""Those of BERT's published vocabulary."""

NUM_BATCHES = 8
"""Different batches; a step takes the next one of them in turn."""


@dataclass(frozen=True)
class Workload:
    """Steps of masked language modelling by a BERT of a named size, dropout 0.1."""

    size: str
    batch_tokens: int = 4096
    length: int = 128

    @property
    def num_rows(self) -> int:
        """Rows in a step."""
        return max(1, self.batch_tokens // self.length)

    def recipe(self) -> Recipe:
        """BERT in this size, asked for hidden pieces alone, in one phase of one length."""
        return Recipe.load(
            f"bert-{self.size}",
            f"assembly={{kind: packed, length: {self.length}}}",
            "objectives.next-sentence=null",
            "objectives.masked.corruption={when: dynamic}",
            f"phases=[{{length: {self.length}}}]",
            f"batch_tokens={self.num_rows * self.length}",
            f"encoder.positions.size={max(512, self.length)}",
        )

    def batches(self) -> list[Batch]:
        """The batches that the steps go through in turn."""
        masked = self.recipe().objectives_of(0)["masked"]
        assert isinstance(masked, Masked)
        return [self._batch(masked, number) for number in range(NUM_BATCHES)]

    def _batch(self, masked: Masked, number: int) -> Batch:
        index = number * self.num_rows + np.arange(self.num_rows)
        lowest = SPECIALS.mask + 1
        drawn = integers(
            key(0, "workload"), VOCABULARY_SIZE - lowest, index[:, None], np.arange(self.length)
        )
        pieces = (lowest + drawn).astype(np.int32)
        rows = Rows(pieces, Coordinates(), np.zeros(pieces.shape, np.bool_))
        asking = Asking(Draw(0, 0, index), Vocabulary(VOCABULARY_SIZE, SPECIALS))
        shown, question = masked.ask(rows, asking)
        return Batch(shown.pieces, shown.coordinates, {"masked": question}, pieces.size)
