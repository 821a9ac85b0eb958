"""Counts of the words of texts, as a tokenizer's model reads them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bertwright.core.errors import UserError
from bertwright.data.tokenization.pretokens import pretoken_pattern
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.tokenization.words import split_words

MAX_DISTINCT_WORDS = 2_000_000
"""Maximum number of distinct words; beyond it, words seen once are dropped while counting."""

_SPACED = re.compile(r"[\u2581\s]*[^\u2581\s]+|[\u2581\s]+")
"""Words with the spaces before them, for tokenizers that read a whole text at once."""


@dataclass
class WordCounts:
    """The number of occurrences of each word of some texts.

    - ``counts``: words after normalisation, as the tokenizer's model reads them
    - ``num_words``: number of words as defined on the text, the same for every tokenizer
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    num_words: int = 0


def count_words(tokenizer: Tokenizer, texts: Iterable[str]) -> WordCounts:
    """Return the word counts of texts; raise UserError if they contain no word."""
    pattern, result = pretoken_pattern(tokenizer.settings), WordCounts()
    pretokens: Counter[str] = Counter()
    for text in texts:
        result.num_words += len(split_words(text))
        if pattern is None:
            _add(result.counts, split_model_words(tokenizer, text))
        else:
            _add(pretokens, pattern.findall(text))
    for pretoken, count in pretokens.items():
        for word in split_model_words(tokenizer, pretoken):
            result.counts[word] += count
    if not result.counts:
        raise UserError("the text contains no words: name files with text")
    return result


def split_model_words(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Yield the words of a text that the tokenizer's model reads, one after the other."""
    backend = tokenizer.backend
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is None:
        yield from _SPACED.findall(text)
        return
    for word, _ in backend.pre_tokenizer.pre_tokenize_str(text):
        yield word


def _add(counts: Counter[str], words: Iterable[str]) -> None:
    """Add words to their counts, which stay bounded."""
    counts.update(words)
    if len(counts) > MAX_DISTINCT_WORDS:
        for word in [word for word, count in counts.items() if count == 1]:
            del counts[word]
