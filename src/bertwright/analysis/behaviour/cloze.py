"""How likely a model finds words in their places."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.analysis import Case
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.model.likelihood import log_probabilities
from bertwright.model.scoring import cloze_log_probabilities
from bertwright.tasks.formats.examples import TaggedWords

Words = tuple[str, ...]


def lacks_words(case: Case) -> str | None:
    """Why nothing can be asked, in words."""
    return None if case.subject.text_model.names_pieces else "its encoder names no pieces"


def log_probabilities_in(
    subject: Subject, sentences: Sequence[Words], asked: Sequence[int]
) -> NDArray[np.float64]:
    """Of the word that is ``asked`` for in every sentence, in nats (N,): all its pieces hidden at
    once, or given what stands before them by a model that reads on."""
    texts = read_texts(subject, [TaggedWords(words, words) for words in sentences])
    model, tokenizer = subject.text_model.model, subject.tokenizer
    rows = [text.pieces for text in texts]
    places = [np.flatnonzero(text.word == n) for text, n in zip(texts, asked, strict=True)]
    parts = [slice(int(own[0]), int(own[-1]) + 1) for own in places]
    if subject.text_model.continues:
        # Of a row the first piece is given, not named.
        read = log_probabilities(model, rows, tokenizer.specials.pad)
        found = [logs[p.start - 1 : p.stop - 1] for logs, p in zip(read, parts, strict=True)]
    else:
        found = cloze_log_probabilities(model, tokenizer, rows, parts)
    return np.array([sum(logs) for logs in found])
