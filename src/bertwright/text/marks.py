"""What is known of a piece beside its identity: where words, sentences and documents start."""

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
    sizes = [len(text[start:end].encode("utf-8", "surrogatepass")) for start, end in spans]
    spans.append((len(text), len(text) + 1))  # after the last word, so that no walk runs out
    marks, word_bytes = [0] * len(offsets), [0] * len(offsets)
    sentences = iter([*sentence_starts, len(text) + 1])
    next_sentence = next(sentences)
    word = counted = owner = 0  # ``counted`` words have added their bytes, or have no piece
    for piece, (begin, end) in enumerate(offsets):
        while spans[word][1] <= begin:
            word += 1
        if counted <= word < len(sizes):
            marks[piece] = WORD_START
            owner, counted = piece, word + 1
            word_bytes[piece] = sizes[word]
        while spans[counted][0] < end:
            word_bytes[owner] += sizes[counted]
            counted += 1
        if max(begin, spans[word][0]) >= next_sentence:
            marks[piece] |= SENTENCE_START
            while next_sentence <= max(begin, spans[word][0]):
                next_sentence = next(sentences)
    return marks, word_bytes
