"""The pieces of documents, fast: a table of the tokenizer's own answers in front of it.

Most of a text is a few thousand words that come again and again. The text is cut into short strings
(*keys*: words and punctuation marks), each is given to the tokenizer once, and its pieces are
looked up from then on. The output equals the tokenizer's exactly, because keys are cut only where
the tokenizer forgets what came before; see :mod:`bertwright.text.keys`.

What may not be cut so is given to the tokenizer as it is: documents that hold the name of a special
piece, and lines whose sentences end without white space. A tokenizer of a make that is not known
gets whole documents.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tokenizers as library
from numpy.typing import ArrayLike, NDArray
from tokenizers import pre_tokenizers

from bertwright.text.keys import is_one_word, key_pattern
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START, mark_pieces
from bertwright.text.sentences import may_end_without_space, sentence_ends
from bertwright.text.tokenizer_library import failure
from bertwright.text.tokenizers import Tokenizer

MAX_KEYS = 1 << 17
"""The table is emptied when it holds more keys than this: about 40 MB."""
MAX_TEXT = 1 << 22
"""... or more characters of keys than this."""

# An entry of the table is 64 bits a piece: the bytes of its words, its marks, its id.
_MARKS_AT, _BYTES_AT = np.uint64(32), np.uint64(40)
_ID_MASK, _MARKS_MASK = np.uint64(0xFFFFFFFF), np.uint64(0xFF)
_MOST_BYTES = np.uint64(0xFFFF)
_NOTHING = np.empty(0, dtype=np.uint64)

# NUL never stands in a document, so a line that goes whole to the tokenizer is told from a key.
_WHOLE = "\0"
_UNIGRAM_SPACE = "\u2581"
_LINE_END = re.compile(r"(?<=\S)(?=\n)")


@dataclass(frozen=True)
class Encoded:
    """Documents as pieces, one after the other.

    ``pieces`` (n,) uint32; ``marks`` (n,) uint8; ``word_bytes`` (number of word starts,) uint16;
    ``document_lengths`` (number of documents,) int64 in pieces, 0 for a document without any;
    ``num_bytes`` of UTF-8 in all documents.
    """

    pieces: NDArray[np.uint32]
    marks: NDArray[np.uint8]
    word_bytes: NDArray[np.uint16]
    document_lengths: NDArray[np.int64]
    num_bytes: int


class PieceCache:
    """Encodes documents with one tokenizer, in bounded memory."""

    def __init__(self, tokenizer: Tokenizer, max_keys: int = MAX_KEYS) -> None:
        self._tokenizer = tokenizer.backend
        self._pattern = key_pattern(self._tokenizer.to_str())
        names = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        names += _UNIGRAM_SPACE if tokenizer.kind == "unigram" else ""
        self._special = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._words = _for_single_words(self._tokenizer)
        self._lowercase = tokenizer.lowercase
        self._max_keys = max_keys
        self._table = _Table()

    def encode(self, documents: Sequence[str]) -> Encoded:
        """The pieces of some documents, none of which may hold a NUL."""
        if len(self._table.numbers) > self._max_keys or self._table.num_characters > MAX_TEXT:
            self._table = _Table()
        keys: list[str] = []
        sentence_keys: list[int] = []
        document_keys: list[int] = []
        for document in documents:
            document_keys.append(len(keys))
            self._cut(document, keys, sentence_keys)
        document_keys.append(len(keys))
        lengths, packed = self._table.look_up(keys, self._learn)

        ends = np.concatenate(([0], np.cumsum(lengths)))
        marks = ((packed >> _MARKS_AT) & _MARKS_MASK).astype(np.uint8)
        _mark(marks, ends[sentence_keys], SENTENCE_START)
        document_ends = ends[document_keys]
        _mark(marks, document_ends[:-1], DOCUMENT_START | SENTENCE_START)
        word_bytes = (packed >> _BYTES_AT)[(marks & WORD_START) != 0]
        return Encoded(
            pieces=(packed & _ID_MASK).astype(np.uint32),
            marks=marks,
            word_bytes=word_bytes.astype(np.uint16),
            document_lengths=np.diff(document_ends),
            num_bytes=sum(len(document.encode()) for document in documents),
        )

    def _cut(self, document: str, keys: list[str], sentence_keys: list[int]) -> None:
        if self._pattern is None or self._special.search(document):
            keys.append(_WHOLE + document)
        elif may_end_without_space(document):
            self._cut_lines(document, keys, sentence_keys)
        else:
            self._cut_sentences(self._pattern, document, keys, sentence_keys)

    def _cut_lines(self, document: str, keys: list[str], sentence_keys: list[int]) -> None:
        starts = [0, *(match.start() for match in _LINE_END.finditer(document)), len(document)]
        for start, end in pairwise(starts):
            sentence_keys.append(len(keys))
            line = document[start:end]
            if may_end_without_space(line):
                keys.append(_WHOLE + line)
            else:
                self._cut(line, keys, sentence_keys)

    @staticmethod
    def _cut_sentences(
        pattern: re.Pattern[str], document: str, keys: list[str], sentence_keys: list[int]
    ) -> None:
        start = 0
        for end in sentence_ends(document):
            keys += pattern.findall(document, start, end)
            sentence_keys.append(len(keys))
            start = end
        keys += pattern.findall(document, start)

    def _learn(self, keys: list[str]) -> None:
        """Ask the tokenizer for the pieces of new keys."""
        words = [key for key in keys if is_one_word(key)]
        self._table.add(words, *self._ask_words(words))
        others = [key for key in keys if not is_one_word(key)]
        texts = [key.removeprefix(_WHOLE) for key in others]
        try:
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        except BaseException as error:
            raise failure(error) from None
        entries: list[NDArray[np.uint64]] = []
        for key, text, encoding in zip(others, texts, encodings, strict=True):
            sentences = list(sentence_ends(text)) if key.startswith(_WHOLE) else []
            entries.append(_pack(encoding.ids, *mark_pieces(text, encoding.offsets, sentences)))
        lengths = np.fromiter(map(len, entries), np.int64, len(entries))
        self._table.add(others, lengths, np.concatenate([*entries, _NOTHING]))

    def _ask_words(self, keys: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Lengths and pieces of single words, asked for as lines of one text: a third the time."""
        lines = "\n".join(keys)
        encoding = self._words.encode(lines.lower() if self._lowercase else lines)
        line = np.array(encoding.word_ids, dtype=np.int64)
        pieces = np.array(encoding.ids, dtype=np.uint64)
        sizes = np.array([len(key) - (key[0] == " ") for key in keys], dtype=np.uint64)
        pieces[np.searchsorted(line, np.arange(len(keys)))] |= _packed_marks(WORD_START, sizes)
        return np.bincount(line, minlength=len(keys)), pieces


class _Table:
    """Keys to entries: a dictionary to numbers, and one flat array that the numbers point into."""

    def __init__(self) -> None:
        self.numbers = _Numbers()
        self.num_characters = 0
        self._starts = np.zeros(1 << 12, dtype=np.int64)
        self._lengths = np.zeros(1 << 12, dtype=np.int64)
        self._flat = np.zeros(1 << 13, dtype=np.uint64)
        self._used = 0

    def look_up(
        self, keys: list[str], learn: Callable[[list[str]], None]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """The number of pieces of every key, and the packed pieces of all keys in a row."""
        number = np.fromiter(map(self.numbers.__getitem__, keys), np.int64, len(keys))
        if self.numbers.new:
            new, self.numbers.new = self.numbers.new, []
            learn(new)
        lengths = self._lengths[number]
        before = np.cumsum(lengths) - lengths
        place = np.repeat(self._starts[number] - before, lengths)
        place += np.arange(len(place))
        return lengths, self._flat[place]

    def add(self, keys: list[str], lengths: NDArray[np.int64], flat: NDArray[np.uint64]) -> None:
        """Set the entries of keys that have a number."""
        number = np.fromiter(map(self.numbers.__getitem__, keys), np.int64, len(keys))
        self._starts = _grown(self._starts, len(self.numbers))
        self._lengths = _grown(self._lengths, len(self.numbers))
        self._flat = _grown(self._flat, self._used + len(flat))
        self._starts[number] = self._used + np.cumsum(lengths) - lengths
        self._lengths[number] = lengths
        self._flat[self._used : self._used + len(flat)] = flat
        self._used += len(flat)
        self.num_characters += sum(map(len, keys))


class _Numbers(dict[str, int]):
    """Numbers its keys in the order in which they are first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, key: str) -> int:
        number = self[key] = len(self)
        self.new.append(key)
        return number


def _for_single_words(tokenizer: library.Tokenizer) -> library.Tokenizer:
    """A tokenizer of lines that are one ASCII word each.

    It has no normaliser: to such a word a known one does nothing but lower its case.
    """
    backend = library.Tokenizer(tokenizer.model)
    splitter = pre_tokenizers.CharDelimiterSplit("\n")
    inner = tokenizer.pre_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([splitter, inner]) if inner else splitter
    return backend


def _pack(ids: list[int], marks: list[int], word_bytes: list[int]) -> NDArray[np.uint64]:
    return np.array(ids, dtype=np.uint64) | _packed_marks(marks, word_bytes)


def _packed_marks(marks: ArrayLike, word_bytes: ArrayLike) -> NDArray[np.uint64]:
    sizes = np.minimum(np.asarray(word_bytes, dtype=np.uint64), _MOST_BYTES)
    return sizes << _BYTES_AT | np.asarray(marks, dtype=np.uint64) << _MARKS_AT


def _mark(marks: NDArray[np.uint8], places: NDArray[np.int64], mark: int) -> None:
    marks[places[places < len(marks)]] |= mark


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
