"""Fast tokenization of documents with a cache of tokenized words.

A text is split into *pretokens* (words and punctuation marks), which are tokenized once and then
looked up. The result equals the tokenizer's exactly, because texts are split only where the
tokenizer ignores context; see :mod:`bertwright.data.tokenization.pretokens`.

Three kinds of text are tokenized whole: documents that contain the name of a special token, lines
with a sentence that ends without white space, and all documents of an unknown kind of tokenizer.
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

from bertwright.data.tokenization.backend import translate_error
from bertwright.data.tokenization.boundaries import (
    DOCUMENT_START,
    SENTENCE_START,
    WORD_START,
    token_boundaries,
)
from bertwright.data.tokenization.pretokens import is_single_word, pretoken_pattern
from bertwright.data.tokenization.sentences import may_end_without_space, sentence_ends
from bertwright.data.tokenization.tokenizer import Tokenizer

MAX_PRETOKENS = 1 << 17
"""Maximum number of cached pretokens, about 40 MB; beyond it the cache is cleared."""
MAX_PRETOKEN_CHARACTERS = 1 << 22
"""Maximum number of cached characters; beyond it the cache is cleared."""
MAX_WORD_BYTES = 0xFFFF
"""Maximum number of bytes that are stored for a word."""

# A cache entry has 64 bits per token: the bytes of its words, its boundary flags, its id.
_BOUNDARIES_SHIFT, _BYTES_SHIFT = np.uint64(32), np.uint64(40)
_ID_MASK, _BOUNDARIES_MASK = np.uint64(0xFFFFFFFF), np.uint64(0xFF)
_NO_ENTRIES = np.empty(0, dtype=np.uint64)

# NUL marks lines and documents that are tokenized whole; documents themselves contain none.
_UNSPLIT_PREFIX = "\0"
_UNIGRAM_SPACE = "\u2581"
_LINE_END = re.compile(r"(?<=\S)(?=\n)")


@dataclass(frozen=True)
class EncodedDocuments:
    """A batch of tokenized documents, one after the other.

    - ``token_ids``: (n,) uint32
    - ``boundaries``: (n,) uint8, the flags of each token
    - ``word_bytes``: (word starts,) uint16, the UTF-8 bytes of each word
    - ``document_lengths``: (documents,) int64, the tokens of each document; 0 if it is empty
    - ``num_bytes``: the UTF-8 bytes of all documents
    """

    token_ids: NDArray[np.uint32]
    boundaries: NDArray[np.uint8]
    word_bytes: NDArray[np.uint16]
    document_lengths: NDArray[np.int64]
    num_bytes: int


class TokenCache:
    """A tokenizer of documents with a cache of bounded size."""

    def __init__(self, tokenizer: Tokenizer, max_pretokens: int = MAX_PRETOKENS) -> None:
        self._tokenizer = tokenizer.backend
        self._pattern = pretoken_pattern(tokenizer.settings)
        names = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        names += _UNIGRAM_SPACE if tokenizer.kind == "unigram" else ""
        self._special_pattern = re.compile("|".join(map(re.escape, names)) or r"(?!)")
        self._word_tokenizer = _single_word_tokenizer(self._tokenizer)
        self._lowercase = tokenizer.lowercase
        self._max_pretokens = max_pretokens
        self._table = _TokenTable()

    def encode(self, documents: Sequence[str]) -> EncodedDocuments:
        """Tokenize documents, which must not contain NUL."""
        if (
            len(self._table.pretoken_ids) > self._max_pretokens
            or self._table.num_characters > MAX_PRETOKEN_CHARACTERS
        ):
            self._table = _TokenTable()
        pretokens: list[str] = []
        sentence_starts: list[int] = []
        document_starts: list[int] = []
        for document in documents:
            document_starts.append(len(pretokens))
            self._split(document, pretokens, sentence_starts)
        document_starts.append(len(pretokens))
        lengths, entries = self._table.look_up(pretokens, self._add_pretokens)

        ends = np.concatenate(([0], np.cumsum(lengths)))
        boundaries = ((entries >> _BOUNDARIES_SHIFT) & _BOUNDARIES_MASK).astype(np.uint8)
        _set_boundaries(boundaries, ends[sentence_starts], SENTENCE_START)
        document_ends = ends[document_starts]
        _set_boundaries(boundaries, document_ends[:-1], DOCUMENT_START | SENTENCE_START)
        word_bytes = (entries >> _BYTES_SHIFT)[(boundaries & WORD_START) != 0]
        return EncodedDocuments(
            token_ids=(entries & _ID_MASK).astype(np.uint32),
            boundaries=boundaries,
            word_bytes=word_bytes.astype(np.uint16),
            document_lengths=np.diff(document_ends),
            num_bytes=sum(len(document.encode()) for document in documents),
        )

    def _split(self, document: str, pretokens: list[str], sentence_starts: list[int]) -> None:
        if self._pattern is None or self._special_pattern.search(document):
            pretokens.append(_UNSPLIT_PREFIX + document)
        elif may_end_without_space(document):
            self._split_lines(document, pretokens, sentence_starts)
        else:
            self._split_sentences(self._pattern, document, pretokens, sentence_starts)

    def _split_lines(self, document: str, pretokens: list[str], sentence_starts: list[int]) -> None:
        starts = [0, *(match.start() for match in _LINE_END.finditer(document)), len(document)]
        for start, end in pairwise(starts):
            sentence_starts.append(len(pretokens))
            line = document[start:end]
            if may_end_without_space(line):
                pretokens.append(_UNSPLIT_PREFIX + line)
            else:
                self._split(line, pretokens, sentence_starts)

    @staticmethod
    def _split_sentences(
        pattern: re.Pattern[str], document: str, pretokens: list[str], sentence_starts: list[int]
    ) -> None:
        start = 0
        for end in sentence_ends(document):
            pretokens += pattern.findall(document, start, end)
            sentence_starts.append(len(pretokens))
            start = end
        pretokens += pattern.findall(document, start)

    def _add_pretokens(self, pretokens: list[str]) -> None:
        """Tokenize new pretokens and add them to the table."""
        words = [pretoken for pretoken in pretokens if is_single_word(pretoken)]
        self._table.add(words, *self._encode_words(words))
        others = [pretoken for pretoken in pretokens if not is_single_word(pretoken)]
        texts = [pretoken.removeprefix(_UNSPLIT_PREFIX) for pretoken in others]
        try:
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        except BaseException as error:
            raise translate_error(error) from None
        entries: list[NDArray[np.uint64]] = []
        for pretoken, text, encoding in zip(others, texts, encodings, strict=True):
            sentences = list(sentence_ends(text)) if pretoken.startswith(_UNSPLIT_PREFIX) else []
            boundaries = token_boundaries(text, encoding.offsets, sentences)
            entries.append(np.array(encoding.ids, np.uint64) | _pack_boundaries(*boundaries))
        lengths = np.fromiter(map(len, entries), np.int64, len(entries))
        self._table.add(others, lengths, np.concatenate([*entries, _NO_ENTRIES]))

    def _encode_words(self, words: list[str]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the number of tokens of each word, and the entries of all words in order.

        The words are tokenized as lines of one text, which takes a third of the time.
        """
        text = "\n".join(words)
        encoding = self._word_tokenizer.encode(text.lower() if self._lowercase else text)
        lines = np.array(encoding.word_ids, dtype=np.int64)
        entries = np.array(encoding.ids, dtype=np.uint64)
        sizes = np.array([len(word) - (word[0] == " ") for word in words], dtype=np.uint64)
        starts = np.searchsorted(lines, np.arange(len(words)))
        entries[starts] |= _pack_boundaries(WORD_START, sizes)
        return np.bincount(lines, minlength=len(words)), entries


class _TokenTable:
    """A table from pretokens to entries: a dictionary of ids, and a flat array of entries."""

    def __init__(self) -> None:
        self.pretoken_ids = _PretokenIds()
        self.num_characters = 0
        self._starts = np.zeros(1 << 12, dtype=np.int64)
        self._lengths = np.zeros(1 << 12, dtype=np.int64)
        self._entries = np.zeros(1 << 13, dtype=np.uint64)
        self._num_entries = 0

    def look_up(
        self, pretokens: list[str], add_pretokens: Callable[[list[str]], None]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the number of tokens of every pretoken, and all entries in order."""
        ids = self._ids(pretokens)
        if self.pretoken_ids.new_pretokens:
            new, self.pretoken_ids.new_pretokens = self.pretoken_ids.new_pretokens, []
            add_pretokens(new)
        lengths = self._lengths[ids]
        before = np.cumsum(lengths) - lengths
        indices = np.repeat(self._starts[ids] - before, lengths)
        indices += np.arange(len(indices))
        return lengths, self._entries[indices]

    def add(
        self, pretokens: list[str], lengths: NDArray[np.int64], entries: NDArray[np.uint64]
    ) -> None:
        """Store the entries of pretokens that have an id."""
        ids = self._ids(pretokens)
        self._starts = _grow_array(self._starts, len(self.pretoken_ids))
        self._lengths = _grow_array(self._lengths, len(self.pretoken_ids))
        self._entries = _grow_array(self._entries, self._num_entries + len(entries))
        self._starts[ids] = self._num_entries + np.cumsum(lengths) - lengths
        self._lengths[ids] = lengths
        self._entries[self._num_entries : self._num_entries + len(entries)] = entries
        self._num_entries += len(entries)
        self.num_characters += sum(map(len, pretokens))

    def _ids(self, pretokens: list[str]) -> NDArray[np.int64]:
        return np.fromiter(map(self.pretoken_ids.__getitem__, pretokens), np.int64, len(pretokens))


class _PretokenIds(dict[str, int]):
    """A dictionary that assigns ids in the order of first use."""

    def __init__(self) -> None:
        super().__init__()
        self.new_pretokens: list[str] = []

    def __missing__(self, pretoken: str) -> int:
        index = self[pretoken] = len(self)
        self.new_pretokens.append(pretoken)
        return index


def _single_word_tokenizer(tokenizer: library.Tokenizer) -> library.Tokenizer:
    """Return a tokenizer of lines that are one ASCII word each.

    It keeps no normaliser: the supported ones change such words only to lower case.
    """
    backend = library.Tokenizer(tokenizer.model)
    splitter = pre_tokenizers.CharDelimiterSplit("\n")
    inner = tokenizer.pre_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([splitter, inner]) if inner else splitter
    return backend


def _pack_boundaries(boundaries: ArrayLike, word_bytes: ArrayLike) -> NDArray[np.uint64]:
    sizes = np.minimum(np.asarray(word_bytes, dtype=np.uint64), np.uint64(MAX_WORD_BYTES))
    return sizes << _BYTES_SHIFT | np.asarray(boundaries, dtype=np.uint64) << _BOUNDARIES_SHIFT


def _set_boundaries(boundaries: NDArray[np.uint8], positions: NDArray[np.int64], flag: int) -> None:
    boundaries[positions[positions < len(boundaries)]] |= flag


def _grow_array(array: NDArray[Any], size: int) -> NDArray[Any]:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
