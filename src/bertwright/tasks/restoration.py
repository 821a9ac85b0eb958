"""Restoring punctuation and capitals: a task whose labels every written text carries.

The words of a text are shown in lower case and without punctuation; asked for each is how it was
capitalised and which mark followed it. Windows of words are cut without regard to sentences, so
where a sentence ends has to be seen from the words around, and their order.

The classes are the products of three capitalisations with no mark, a comma or a stop, to which the
other marks are mapped nearly as by Tilk and Alumäe (2016). A question mark counts as a stop: with
less than one in a thousand words it would be a class too rare to be scored.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from bertwright.errors import UserError
from bertwright.randomness import key, uniform
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.lines import read_lines
from bertwright.tasks.formats.reader import Reader

_MARKS = dict.fromkeys(".?!;\u2026", ".") | dict.fromkeys(",:\u2013\u2014", ",")

CAPITALS = ("lower", "Capitalised", "CAPITALS")
TAGS = tuple(f"{capitals}{mark}" for capitals in CAPITALS for mark in ("", ",", "."))
"""``lower``, ``lower,`` ... ``CAPITALS.``: how a word is written, and what follows it."""


def tagged_words(text: str) -> TaggedWords:
    """The words of a text, bare, and the tags from which it could be written again."""
    words: list[str] = []
    tags: list[str] = []
    for written in text.split():
        start, end = _bare(written)
        mark = _mark(written[end:])
        if start < end:
            word = written[start:end]
            words.append(word.lower())
            tags.append(_capitals(word) + mark)
        elif mark and tags and tags[-1] in CAPITALS:
            tags[-1] += mark  # A mark that stands alone belongs to the word before.
    return TaggedWords(tuple(words), tuple(tags))


def restoration_examples(documents: Iterable[str], num_words: int = 48) -> list[TaggedWords]:
    """Windows of at most so many words, one after the other, none of them over two documents."""
    return [
        window for document in documents for window in _windows(tagged_words(document), num_words)
    ]


def split_documents(
    documents: Iterable[str], test_share: float = 0.25, seed: int = 0
) -> tuple[list[str], list[str]]:
    """Documents to train on, and documents to test on.

    The side is a function of the content, so equal documents are on one side, and a document stays
    where it is when others come or go.
    """
    of = key(seed, "restoration", "split")
    sides: tuple[list[str], list[str]] = ([], [])
    for document in documents:
        digest = blake2b(document.strip().encode("utf-8", "replace"), digest_size=8).digest()
        sides[int(float(uniform(of, int.from_bytes(digest, "little"))) < test_share)].append(
            document
        )
    return sides


class RestorationReader(Reader):
    """The windows of a text file in which an empty line stands between documents."""

    kind: Literal["restoration"] = "restoration"

    def read(self, path: Path, labelled: bool = True) -> list[TaggedWords]:
        examples = restoration_examples(_documents(path))
        if not examples:
            raise UserError(f"{path} holds no words")
        return examples if labelled else [replace(example, tags=None) for example in examples]


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


def _windows(sentence: TaggedWords, num_words: int) -> Iterator[TaggedWords]:
    words, tags = sentence.words, sentence.tags or ()
    for start in range(0, len(words), num_words):
        stop = start + num_words
        yield TaggedWords(words[start:stop], tags[start:stop])


def _bare(written: str) -> tuple[int, int]:
    """Where the word within its punctuation starts and ends."""
    inside = [place for place, character in enumerate(written) if character.isalnum()]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def _mark(behind: str) -> str:
    """The last of our marks among what stands behind a word: ``.`` of ``)."``, ``,`` of ``.,``."""
    return next((_MARKS[character] for character in reversed(behind) if character in _MARKS), "")


def _capitals(word: str) -> str:
    letters = [character for character in word if character.isalpha()]
    if len(letters) > 1 and all(letter.isupper() for letter in letters):
        return "CAPITALS"
    return "Capitalised" if letters and letters[0].isupper() else "lower"
