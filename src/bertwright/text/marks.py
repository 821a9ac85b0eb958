"""What is known of a piece beside its identity: where words, sentences and documents start."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from bertwright.text.words import word_spans

WORD_START = 1
SENTENCE_START = 2
DOCUMENT_START = 4


def mark_pieces(
    text: str, offsets: Sequence[tuple[int, int]], sentence_starts: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """The marks of every piece, and the UTF-8 bytes of the words that start at it.

    ``offsets`` are the characters that each piece covers. A piece belongs to the word in which its
    first character that is not white space lies (a piece of white space alone: to the next word).
    A word that starts inside a piece of an earlier word is not marked; its bytes count there.
    """
    spans = word_spans(text)
    starts = [start for start, _ in spans]
    sizes = [len(text[start:end].encode("utf-8", "surrogatepass")) for start, end in spans]
    marks = [0] * len(offsets)
    word_bytes = [0] * len(offsets)
    sentences = iter(sentence_starts)
    never = len(text) + 1
    next_sentence = next(sentences, never)
    seen = owner = -1
    for piece, (begin, end) in enumerate(offsets):
        place = _skip_space(text, begin)
        word = bisect_right(starts, place) - 1
        if word > seen:
            marks[piece] = WORD_START
            owner = piece
        last = max(bisect_left(starts, end) - 1, word)
        if last > seen and owner >= 0:
            word_bytes[owner] += sum(sizes[max(seen + 1, word) : last + 1])
            seen = last
        if place >= next_sentence:
            marks[piece] |= SENTENCE_START
            while next_sentence <= place:
                next_sentence = next(sentences, never)
    return marks, word_bytes


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place
