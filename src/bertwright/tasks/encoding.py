"""Examples to rows of pieces: a text, a pair, words with the place of each, a text in windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertwright.encoder.visibility import segment_of
from bertwright.errors import UserError
from bertwright.examples.assembly.pair_layout import longest_first
from bertwright.examples.assembly.pairs import Pair
from bertwright.recipes import Recipe
from bertwright.tasks.formats.examples import AnyExample, Example, Question, TaggedWords
from bertwright.text.tokenizers import Tokenizer

USUAL_LENGTH = 512
"""The longest row where nothing is said of it, and the positions allow as much."""


@dataclass(frozen=True)
class TaskRow:
    """One row, special pieces included.

    Attributes:
        example: index of the example it is made of.
        segments: the segment of every piece, None where the encoder knows none.
        places: those that are read one by one; empty where the row is read as a whole.
        first_word: of words, the index of its first in the example; a sentence that is too long for
            a row has several rows.
        characters: of places behind the first that are pieces of a text, from where to where each
            stands in it.
        text_characters: the same of all tokens of the text, shared by its windows.
        first_token: of a window, the index of its first token in the text.
        num_cut: pieces of the example that no row has.
        documents: of every piece which text it is of, where texts are read apart: neither sees the
            other.
    """

    pieces: list[int]
    example: int
    segments: list[int] | None = None
    places: tuple[int, ...] = ()
    first_word: int = 0
    characters: tuple[tuple[int, int], ...] = ()
    text_characters: Sequence[tuple[int, int]] = ()
    first_token: int = 0
    num_cut: int = 0
    documents: list[int] | None = None


@dataclass(frozen=True)
class RowMaker:
    """How an encoder takes its texts.

    Attributes:
        length: the longest row.
        separators: pieces between the texts of a pair.
        between: the segment of these: that of the first text (BERT), but of the second where the
            first sees everything, and not what stands behind it (Longformer).
        segmented: whether the encoder tells the texts of a pair apart by segment.
        apart: whether each text of a pair is read as if it were alone.
    """

    tokenizer: Tokenizer
    length: int
    separators: int
    between: int
    segmented: bool
    apart: bool = False

    @staticmethod
    def of(
        recipe: Recipe,
        tokenizer: Tokenizer,
        longest: int | None,
        length: int | None = None,
        apart: bool = False,
    ) -> "RowMaker":
        """As the recipe's assembly says, in rows of at most ``length``; None takes
        ``longest``, 512 at most."""
        limit = min(longest or USUAL_LENGTH, USUAL_LENGTH) if length is None else length
        encoder, separators = recipe.encoder, separators_of(recipe, tokenizer)
        between = 0 if encoder.has_segments or segment_of(encoder.visibility) == 1 else 1
        return RowMaker(tokenizer, limit, separators, between, encoder.tells_segments, apart)

    def rows(
        self,
        examples: Sequence[AnyExample],
        stride: int | None = None,
        owner: Sequence[int] | None = None,
    ) -> list[TaskRow]:
        """The rows of all examples, in their order.

        With a ``stride`` the last text of an example that is too long is read in windows, whose
        beginnings are so many pieces apart; half of a row is left to it where it needs that.
        ``owner`` are the indices that the rows bear in the place of those of the examples.
        """
        numbers = range(len(examples)) if owner is None else owner
        texts = [e for e in examples if isinstance(e, Example)]
        if len(texts) != len(examples):
            return [
                row for n, e in zip(numbers, examples, strict=True) for row in self._words(n, e)
            ]
        if self.apart and (lone := next((e for e in texts if e.second is None), None)):
            raise UserError(
                f"{lone.where or 'an example'}: head.read: apart compares two texts, and this is "
                f"one: name the column of the second (pair), or choose another head.read"
            )
        firsts = self.tokenizer.encode_batch([e.first for e in texts])
        seconds = self.tokenizer.encode_batch([e.second or "" for e in texts])
        return [
            row
            for n, e, a, b in zip(numbers, texts, firsts, seconds, strict=True)
            for row in self._text(n, [a] if e.second is None else [a, b], stride)
        ]

    def windows(
        self, questions: Sequence[Question], stride: int, longest_question: int
    ) -> list[TaskRow]:
        """Every question before its text, which is read in windows; the places are the first of the
        row and those of the pieces of the text. At least half of a row is left to the text."""
        asked = self.tokenizer.encode_batch([q.question for q in questions])
        texts = list(dict.fromkeys(q.text for q in questions))
        read = dict(zip(texts, self.tokenizer.encode_spans(texts), strict=True))
        longest_question = min(longest_question, (self.length - 2 - self.separators) // 2)
        rows: list[TaskRow] = []
        for number, (question, ids) in enumerate(zip(questions, asked, strict=True)):
            pieces, characters = read[question.text]
            first = ids[:longest_question]
            room = self.length - 2 - self.separators - len(first)
            for start, stop in _windows(len(pieces), room, stride):
                row = self._row(number, [first, pieces[start:stop]])
                begin = 1 + len(first) + self.separators
                places = (0, *range(begin, begin + stop - start))
                rows.append(
                    TaskRow(
                        row.pieces,
                        number,
                        row.segments,
                        places,
                        characters=tuple(characters[start:stop]),
                        text_characters=characters,
                        first_token=start,
                        num_cut=len(ids) - len(first),
                    )
                )
        return rows

    def _text(self, number: int, texts: list[list[int]], stride: int | None) -> Iterator[TaskRow]:
        """The rows of a text, or of a pair of them."""
        between = 2 if self.apart else self.separators
        room = self.length - 2 - (between if len(texts) > 1 else 0)
        size = sum(map(len, texts))
        if size <= room:
            yield self._row(number, texts)
        elif stride is None:
            if len(texts) == 1:
                yield self._row(number, [texts[0][:room]], size - room)
            else:
                first, second = longest_first(len(texts[0]), len(texts[1]), room)
                yield self._row(number, [texts[0][:first], texts[1][:second]], size - room)
        else:
            least = min(len(texts[-1]), room // 2)
            before = [text[: room - least] for text in texts[:-1]]
            num_cut = sum(map(len, texts[:-1])) - sum(map(len, before))
            left = room - sum(map(len, before))
            for start, stop in _windows(len(texts[-1]), left, stride):
                yield self._row(number, [*before, texts[-1][start:stop]], num_cut)

    def joined(self, texts: Sequence[list[int]]) -> tuple[list[int], list[int]]:
        """The pieces of a row that reads one text, or two, and the segment of each."""
        special = self.tokenizer.specials
        pieces = [special.start, *texts[0]]
        segments = [0] * len(pieces)
        for text in texts[1:]:
            pieces += [special.end] * self.separators + text
            segments += [self.between] * self.separators + [1] * len(text)
        return [*pieces, special.end], [*segments, len(texts) - 1]

    def _row(self, number: int, texts: Sequence[list[int]], num_cut: int = 0) -> TaskRow:
        if self.apart:
            return self._apart(number, texts, num_cut)
        pieces, segments = self.joined(texts)
        return TaskRow(pieces, number, segments if self.segmented else None, num_cut=num_cut)

    def _apart(self, number: int, texts: Sequence[list[int]], num_cut: int) -> TaskRow:
        special = self.tokenizer.specials
        alone = [[special.start, *text, special.end] for text in texts]
        pieces = [piece for own in alone for piece in own]
        documents = [document for document, own in enumerate(alone) for _ in own]
        segments = [0] * len(pieces) if self.segmented else None
        return TaskRow(pieces, number, segments, num_cut=num_cut, documents=documents)

    def _words(self, number: int, sentence: AnyExample) -> Iterator[TaskRow]:
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


def pieces_cut(rows: Sequence[TaskRow]) -> dict[int, int]:
    """Of the examples that lost pieces, because no row is long enough, how many, by number."""
    return {row.example: row.num_cut for row in rows if row.num_cut}


def documents_of(rows: Sequence[TaskRow]) -> list[list[int]] | None:
    """Those of rows whose texts are read apart; None of others."""
    found = [row.documents for row in rows if row.documents is not None]
    return found or None


def separators_of(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """How many stand between the texts of a pair: of an assembly of pairs its own; else two for
    pieces spelled as RoBERTa's, one for BERT's."""
    assembly = recipe.assembly.evaluated
    if isinstance(assembly, Pair):
        return assembly.separators
    return 2 if tokenizer.piece(tokenizer.specials.end) == "</s>" else 1


def _windows(size: int, room: int, stride: int) -> Iterator[tuple[int, int]]:
    """From where to where the windows of so many pieces reach, the last to the end; none of them
    leaves a gap."""
    start = 0
    while start + room < size:
        yield start, start + room
        start += min(stride, room)
    yield start, size
