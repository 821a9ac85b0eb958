"""Restoring punctuation and capitals: a tagging task whose labels come from any text.

The words of a text are lower-cased and stripped of punctuation; the tag of each word gives its
capitalisation and the mark that followed it. Windows of words ignore sentence boundaries, so the
end of a sentence must be inferred from the words and their order.

There are nine classes: three capitalisations times no mark, a comma or a stop. Other marks are
mapped to these nearly as by Tilk and Alumäe (2016). A question mark counts as a stop: it follows
less than one word in a thousand, too few to be scored.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, Literal

from bertwright.core.rng import stream_key, uniform
from bertwright.data.readers.text_lines import read_lines
from bertwright.tasks.formats.example_reader import ExampleReader
from bertwright.tasks.formats.examples import TaggedSentence

_MARKS = dict.fromkeys(".?!;\u2026", ".") | dict.fromkeys(",:\u2013\u2014", ",")

CAPITALISATIONS = ("lower", "Capitalised", "CAPITALS")
TAGS = tuple(f"{capitals}{mark}" for capitals in CAPITALISATIONS for mark in ("", ",", "."))
"""``lower``, ``lower,`` ... ``CAPITALS.``: capitalisation and following mark of a word."""


def tag_text(text: str) -> TaggedSentence:
    """Return the bare words of a text, and the tags that restore it."""
    words: list[str] = []
    tags: list[str] = []
    for token in text.split():
        start, end = _word_bounds(token)
        mark = _punctuation_mark(token[end:])
        if start < end:
            word = token[start:end]
            words.append(word.lower())
            tags.append(_capitalisation(word) + mark)
        elif mark and tags and tags[-1] in CAPITALISATIONS:
            tags[-1] += mark  # A separate mark belongs to the preceding word.
    return TaggedSentence(tuple(words), tuple(tags))


def restoration_examples(documents: Iterable[str], num_words: int = 48) -> list[TaggedSentence]:
    """Return consecutive windows of at most ``num_words`` words within each document."""
    return [window for document in documents for window in _windows(tag_text(document), num_words)]


def split_documents(
    documents: Iterable[str], test_fraction: float = 0.25, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Split documents into training and test documents.

    The split depends only on the content: equal documents are always in the same split, whatever
    the other documents.
    """
    key = stream_key(seed, "restoration", "split")
    train: list[str] = []
    test: list[str] = []
    for document in documents:
        digest = blake2b(document.strip().encode("utf-8", "replace"), digest_size=8).digest()
        is_test = float(uniform(key, int.from_bytes(digest, "little"))) < test_fraction
        (test if is_test else train).append(document)
    return train, test


class RestorationReader(ExampleReader):
    """Windows of a text file with empty lines between documents."""

    kind: Literal["restoration"] = "restoration"

    contents: ClassVar[str] = "words"

    def iter_examples(self, path: Path, with_labels: bool) -> Iterator[TaggedSentence]:
        for example in restoration_examples(_documents(path)):
            yield example if with_labels else replace(example, tags=None)


def _documents(path: Path) -> Iterator[str]:
    lines: list[str] = []
    for _, line in read_lines(path):
        if line.strip():
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def _windows(sentence: TaggedSentence, num_words: int) -> Iterator[TaggedSentence]:
    words, tags = sentence.words, sentence.tags or ()
    for start in range(0, len(words), num_words):
        stop = start + num_words
        yield TaggedSentence(words[start:stop], tags[start:stop])


def _word_bounds(word: str) -> tuple[int, int]:
    """Return start and end of the word within its punctuation."""
    indices = [index for index, character in enumerate(word) if character.isalnum()]
    return (indices[0], indices[-1] + 1) if indices else (0, 0)


def _punctuation_mark(suffix: str) -> str:
    """Return the last known mark after a word: ``.`` for ``).", `` and ``,`` for ``.,``."""
    return next((_MARKS[character] for character in reversed(suffix) if character in _MARKS), "")


def _capitalisation(word: str) -> str:
    letters = [character for character in word if character.isalpha()]
    if len(letters) > 1 and all(letter.isupper() for letter in letters):
        return "CAPITALS"
    return "Capitalised" if letters and letters[0].isupper() else "lower"
