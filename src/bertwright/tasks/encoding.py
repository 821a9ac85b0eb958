"""Examples to rows of pieces: one text, a pair, or words with the place of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertwright.examples.assembly.pair_layout import longest_first
from bertwright.examples.assembly.pairs import Pair
from bertwright.recipes import Recipe
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.text.tokenizers import Tokenizer

Examples = Sequence[Example] | Sequence[TaggedWords]

USUAL_LENGTH = 512
"""The longest row where the positions set no limit."""


@dataclass(frozen=True)
class TaskRow:
    """One row, special pieces included.

    Attributes:
        example: index of the example it is made of.
        segments: the segment of every piece, None where the encoder knows none.
        places: where the words begin; empty for texts.
        first_word: index of its first word in the example; a sentence that is too long for a row
            has several.
    """

    pieces: list[int]
    example: int
    segments: list[int] | None = None
    places: tuple[int, ...] = ()
    first_word: int = 0


@dataclass(frozen=True)
class RowMaker:
    """How an encoder takes its texts.

    Attributes:
        length: the longest row.
        separators: pieces between the texts of a pair.
        segmented: whether the encoder tells the texts of a pair apart by segment.
    """

    tokenizer: Tokenizer
    length: int
    separators: int
    segmented: bool

    @staticmethod
    def of(
        recipe: Recipe, tokenizer: Tokenizer, longest: int | None, length: int | None = None
    ) -> "RowMaker":
        """As the recipe's assembly says, in rows of at most ``length`` (else ``longest``)."""
        limit = min(longest or USUAL_LENGTH, USUAL_LENGTH) if length is None else length
        encoder = recipe.encoder
        segmented = encoder.embeddings.segments > 1 or encoder.positions.tells_segments
        return RowMaker(tokenizer, limit, separators_of(recipe, tokenizer), segmented)

    def rows(self, examples: Examples) -> list[TaskRow]:
        """The rows of all examples, in their order."""
        texts = [e for e in examples if isinstance(e, Example)]
        if len(texts) != len(examples):
            return [row for n, e in enumerate(examples) for row in self._words(n, e)]
        firsts = self.tokenizer.encode_batch([e.first for e in texts])
        seconds = self.tokenizer.encode_batch([e.second or "" for e in texts])
        return [
            self._single(n, a) if e.second is None else self._pair(n, a, b)
            for n, (e, a, b) in enumerate(zip(texts, firsts, seconds, strict=True))
        ]

    def _single(self, number: int, ids: list[int]) -> TaskRow:
        special = self.tokenizer.specials
        pieces = [special.start, *ids[: self.length - 2], special.end]
        return TaskRow(pieces, number, [0] * len(pieces) if self.segmented else None)

    def _pair(self, number: int, first: list[int], second: list[int]) -> TaskRow:
        special = self.tokenizer.specials
        room = self.length - 2 - self.separators
        num_first, num_second = longest_first(len(first), len(second), room)
        between = [special.end] * self.separators
        a = [special.start, *first[:num_first], *between]
        b = [*second[:num_second], special.end]
        return TaskRow([*a, *b], number, [0] * len(a) + [1] * len(b) if self.segmented else None)

    def _words(self, number: int, sentence: Example | TaggedWords) -> Iterator[TaskRow]:
        assert isinstance(sentence, TaggedWords)
        special, room = self.tokenizer.specials, self.length - 2
        ids, starts = self.tokenizer.words(list(sentence.words))
        ends = [*starts[1:], len(ids)]
        word = 0
        while word < len(starts):
            begin, stop = starts[word], word
            # At least one word to a row, whose pieces are cut if even it is too long.
            while stop < len(starts) and (stop == word or ends[stop] - begin <= room):
                stop += 1
            pieces = [special.start, *ids[begin : ends[stop - 1]][:room], special.end]
            places = tuple(1 + start - begin for start in starts[word:stop])
            segments = [0] * len(pieces) if self.segmented else None
            yield TaskRow(pieces, number, segments, places, word)
            word = stop


def separators_of(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """How many stand between the texts of a pair: of an assembly of pairs its own; else two for
    pieces spelled as RoBERTa's, one for BERT's."""
    assembly = recipe.assembly.evaluated
    if isinstance(assembly, Pair):
        return assembly.separators
    return 2 if tokenizer.piece(tokenizer.specials.end) == "</s>" else 1
