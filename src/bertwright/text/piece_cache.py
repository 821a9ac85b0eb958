"""The pieces of documents, fast: a table of the tokenizer's own answers in front of it.

Most of a text is a few thousand words that come again and again. The text is cut into short strings
(*keys*: words and punctuation marks), each is given to the tokenizer once, and its pieces are
looked up from then on. The output equals the tokenizer's exactly, because keys are cut only where
each kind of tokenizer forgets what came before:

- WordPiece behind BERT's normaliser and splitter: both treat ASCII white space and ASCII
  punctuation on their own, whatever stands beside them;
- byte-BPE behind GPT-2's pattern: no match of the pattern goes from a character that is not white
  space on to one that is, nor from an ASCII letter or digit on to ASCII punctuation, nor (but for
  the apostrophe) back;
- Unigram with white space collapsed: the tokenizer sees a list of words.

What may not be cut so is given to the tokenizer as it is: documents that hold the name of a special
piece, and lines whose sentences end without white space. A tokenizer of any other make gets whole
documents.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertwright.text.characters import ASCII_PUNCTUATION, WHITE_SPACE
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START, mark_pieces
from bertwright.text.sentences import may_end_without_space, sentence_ends
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
        if self._pattern is _WORD_KEY:
            names.append(_UNIGRAM_SPACE)
        self._special = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._line_end = self._tokenizer.encode("\n", add_special_tokens=False).ids
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
        words = [key for key in keys if _is_one_word(key)]
        self._table.add(words, *self._ask_words(words))
        others = [key for key in keys if not _is_one_word(key)]
        texts = [key.removeprefix(_WHOLE) for key in others]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        entries: list[NDArray[np.uint64]] = []
        for key, text, encoding in zip(others, texts, encodings, strict=True):
            sentences = list(sentence_ends(text)) if key.startswith(_WHOLE) else []
            entries.append(_pack(encoding.ids, *mark_pieces(text, encoding.offsets, sentences)))
        lengths = np.fromiter(map(len, entries), np.int64, len(entries))
        self._table.add(others, lengths, np.concatenate([*entries, _NOTHING]))

    def _ask_words(self, keys: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Lengths and pieces of single words, asked for as lines of one text: a third the time."""
        encoding = self._tokenizer.encode("\n".join(keys), add_special_tokens=False)
        sizes = np.fromiter(map(len, keys), np.int64, len(keys))
        line_ends = np.cumsum(sizes + 1) - 1
        begins = np.array([begin for begin, _ in encoding.offsets], dtype=np.int64)
        line = np.searchsorted(line_ends, begins)
        # At a line end begins byte-BPE's piece for it, or Unigram's first piece of the next line.
        at_line_end = begins == line_ends[np.minimum(line, len(keys) - 1)]
        pieces = np.array(encoding.ids, dtype=np.uint64)
        inside = ~(at_line_end & np.isin(pieces, self._line_end))
        line, pieces = (line + at_line_end)[inside], pieces[inside]
        first = np.searchsorted(line, np.arange(len(keys)))
        spaces = np.fromiter((key[0] in " \n" for key in keys), np.int64, len(keys))
        pieces[first] |= _packed_marks(WORD_START, sizes - spaces)
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


def key_pattern(settings: str) -> re.Pattern[str] | None:
    """How to cut a text for a tokenizer (in JSON); None where no cut is known to be safe."""
    tokenizer = json.loads(settings)
    normalizer = tokenizer["normalizer"]
    matched_after_it = any(token["normalized"] for token in tokenizer["added_tokens"])
    if normalizer is not None and matched_after_it:
        return None
    make = (_make(normalizer), _make(tokenizer["pre_tokenizer"]), tokenizer["model"]["type"])
    return _PATTERNS.get(make)


def _make(part: dict[str, Any] | None) -> str:
    """What decides whether a part of a tokenizer is one we know."""
    if part is None:
        return ""
    if part["type"] == "Sequence":
        return "+".join(map(_make, part.get("normalizers") or part["pretokenizers"]))
    deciding = ("add_prefix_space", "use_regex", "prepend_scheme", "split", "pattern", "content")
    return " ".join([part["type"], *(f"{k}={part[k]}" for k in deciding if k in part)])


_BERT_KEY = re.compile(rf"[^ \t\n\r{ASCII_PUNCTUATION}]++|[{ASCII_PUNCTUATION}]")
_PUNCTUATION_BUT_APOSTROPHE = ASCII_PUNCTUATION.replace("!-/", "!-&(-/")
_BYTE_BPE_KEY = re.compile(
    r" ?+[A-Za-z0-9]++(?![^\0-\x7f])"
    rf"| ?+[{_PUNCTUATION_BUT_APOSTROPHE}]++(?=[A-Za-z0-9 ]|\Z)"
    rf"|[{WHITE_SPACE}]*+[^{WHITE_SPACE}]++|[{WHITE_SPACE}]++"
)
_WORD_KEY = re.compile(r"[^ \n]++")
_COLLAPSE = "Replace pattern={'Regex': '\\\\s+'} content= "

_PATTERNS: dict[tuple[str, str, str], re.Pattern[str]] = {
    ("BertNormalizer", "BertPreTokenizer", "WordPiece"): _BERT_KEY,
    ("", "ByteLevel add_prefix_space=False use_regex=True", "BPE"): _BYTE_BPE_KEY,
    (f"NFKC+{_COLLAPSE}+Strip", "Metaspace prepend_scheme=always split=True", "Unigram"): _WORD_KEY,
    (
        f"NFKC+Lowercase+{_COLLAPSE}+Strip",
        "Metaspace prepend_scheme=always split=True",
        "Unigram",
    ): _WORD_KEY,
}


def _is_one_word(key: str) -> bool:
    """Whether a key is certainly one word, perhaps after one space or line end."""
    return key.isascii() and key[key[0] in " \n" :].isalnum()


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
