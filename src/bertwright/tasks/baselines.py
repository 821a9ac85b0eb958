"""What can be answered without looking at the words around: the scores that a model has to beat."""

from collections import Counter
from collections.abc import Iterable, Sequence

from bertwright.tasks.formats.examples import TaggedWords

Predictions = list[tuple[str, ...]]
"""For every sentence the tags of its words."""


def majority_tag(training: Iterable[TaggedWords], asked: Sequence[TaggedWords]) -> Predictions:
    """The most frequent tag of the training sentences, for every word."""
    majority = _most_frequent(Counter(tag for s in training for tag in s.tags or ()))
    return [(majority,) * len(sentence.words) for sentence in asked]


def tag_of_word(training: Iterable[TaggedWords], asked: Sequence[TaggedWords]) -> Predictions:
    """The most frequent tag of each word in the training sentences; of all words for a new one."""
    all_words: Counter[str] = Counter()
    each_word: dict[str, Counter[str]] = {}
    for sentence in training:
        all_words.update(sentence.tags or ())
        for word, tag in zip(sentence.words, sentence.tags or (), strict=True):
            each_word.setdefault(word, Counter())[tag] += 1
    tags = {word: _most_frequent(counts) for word, counts in each_word.items()}
    majority = _most_frequent(all_words)
    return [tuple(tags.get(word, majority) for word in sentence.words) for sentence in asked]


def _most_frequent(counts: Counter[str]) -> str:
    """The tag that is counted most often; of equals the first in the alphabet."""
    return min(counts, key=lambda tag: (-counts[tag], tag))
