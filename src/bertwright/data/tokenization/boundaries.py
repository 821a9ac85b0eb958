"""Boundary flags of tokens: where words, sentences and documents start."""

from collections.abc import Sequence

from bertwright.data.tokenization.words import word_spans

WORD_START = 1
SENTENCE_START = 2
DOCUMENT_START = 4


def token_boundaries(
    text: str, offsets: Sequence[tuple[int, int]], sentence_starts: Sequence[int] = ()
) -> tuple[list[int], list[int]]:
    """Return the boundary flags of every token, and the UTF-8 bytes of words starting there.

    ``offsets`` are the characters [start, stop) of each token. A token belongs to the word of its
    first visible character, or to the next word if it is white space. A word that starts inside a
    token of an earlier word has no flag; its bytes are added to that word.
    """
    spans = word_spans(text)
    sizes = [len(text[start:end].encode("utf-8", "surrogatepass")) for start, end in spans]
    spans.append((len(text), len(text) + 1))  # sentinel after the last word
    boundaries, word_bytes = [0] * len(offsets), [0] * len(offsets)
    sentences = iter([*sentence_starts, len(text) + 1])
    next_sentence = next(sentences)
    word = counted = owner = 0  # ``counted`` words have added their bytes, or have no token
    for token, (begin, end) in enumerate(offsets):
        while spans[word][1] <= begin:
            word += 1
        if counted <= word < len(sizes):
            boundaries[token] = WORD_START
            owner, counted = token, word + 1
            word_bytes[token] = sizes[word]
        while spans[counted][0] < end:
            word_bytes[owner] += sizes[counted]
            counted += 1
        if max(begin, spans[word][0]) >= next_sentence:
            boundaries[token] |= SENTENCE_START
            while next_sentence <= max(begin, spans[word][0]):
                next_sentence = next(sentences)
    return boundaries, word_bytes
