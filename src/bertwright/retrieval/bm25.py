"""BM25 over words (Robertson et al. 1994), by bm25s, whose scores are computed when indexing.

Its weights depend on all texts of the index, so it is written again when texts are added.
"""

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.optional_dependencies import require_library
from bertwright.data.tokenization.words import split_words
from bertwright.retrieval.rankings import Ranking, top_matches


class Bm25Index:
    """The BM25 scores of all words in all texts."""

    def __init__(self, bm25: Any, stop_words: frozenset[str]) -> None:
        self._bm25, self._stop_words = bm25, stop_words

    @staticmethod
    def write(folder: Path, texts: Iterable[str], language: str | None) -> None:
        """Write the index of texts into a folder.

        Terms wait on disk meanwhile; memory holds the vocabulary and an entry per term and text.
        Errors: UserError if no text has a term.
        """
        require_library("bm25s", "search")
        from bm25s import BM25
        from bm25s.tokenization import Tokenized

        stop_words = stop_word_list(language)
        vocabulary: dict[str, int] = {}
        lengths = array("q")
        with tempfile.TemporaryFile(dir=folder) as stream:
            for text in texts:
                ids = [vocabulary.setdefault(t, len(vocabulary)) for t in terms(text, stop_words)]
                lengths.append(len(ids))
                stream.write(np.array(ids, np.int32).tobytes())
            if not vocabulary:
                raise UserError("no text has a word: BM25 needs texts of words")
            stream.flush()
            term_ids = np.asarray(np.memmap(stream, np.int32, mode="r"))
            # bm25s only counts and iterates over its lists.
            term_lists: Any = _TermLists(term_ids, np.cumsum([0, *lengths]))
            bm25 = BM25()
            corpus = Tokenized(term_lists, vocabulary)
            bm25.index(corpus, create_empty_token=False, show_progress=False)
        bm25.save(str(folder), show_progress=False)

    @classmethod
    def open(cls, folder: Path, language: str | None) -> Self:
        """Map the scores into memory."""
        require_library("bm25s", "search")
        from bm25s import BM25

        bm25 = BM25.load(str(folder), mmap=True, load_vocab=True, show_progress=False)
        return cls(bm25, stop_word_list(language))

    def rank(self, queries: Sequence[str], top: int) -> list[Ranking]:
        """Return the texts with the highest scores, if they share a term with the query."""
        return [top_matches(self._scores(query), top) for query in queries]

    def _scores(self, query: str) -> NDArray[np.float32]:
        term_ids = self._bm25.get_tokens_ids(terms(query, self._stop_words))
        return self._bm25.get_scores_from_ids(term_ids)


def terms(text: str, stop_words: frozenset[str] = frozenset()) -> list[str]:
    """Return the words of a text that are indexed: lower-cased, without punctuation."""
    words = (word.lower() for word in split_words(text) if word[0].isalnum())
    return [word for word in words if word not in stop_words]


def stop_word_list(language: str | None) -> frozenset[str]:
    """Return the stop words of a language, such as ``en``; UserError for an unknown one."""
    if language is None:
        return frozenset()
    if language not in _STOP_WORD_LISTS:
        raise UserError(
            f"there are no stop words of {language!r}{did_you_mean(language, _STOP_WORD_LISTS)}"
        )
    require_library("bm25s", "search")
    from bm25s import stopwords

    return frozenset(getattr(stopwords, f"STOPWORDS_{_STOP_WORD_LISTS[language]}"))


_STOP_WORD_LISTS = {
    "da": "DANISH",
    "de": "GERMAN",
    "en": "EN",
    "es": "SPANISH",
    "fr": "FRENCH",
    "it": "ITALIAN",
    "ko": "KOREAN",
    "nl": "DUTCH",
    "no": "NORWEGIAN",
    "pt": "PORTUGUESE",
    "ru": "RUSSIAN",
    "sv": "SWEDISH",
    "tr": "TURKISH",
    "zh": "CHINESE",
}
"""Names of bm25s for its lists, by language code."""


@dataclass(frozen=True)
class _TermLists:
    """The term ids of texts as lists, read from disk one at a time."""

    term_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[list[int]]:
        bounds = self.offsets.tolist()
        for start, stop in pairwise(bounds):
            yield self.term_ids[start:stop].tolist()
