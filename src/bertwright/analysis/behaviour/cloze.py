"""Log-probabilities of words in their sentences."""

from collections.abc import Sequence

import numpy as np

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import (
    SentenceWords,
    encode_sentences,
)
from bertwright.core.significance import FloatArray
from bertwright.models.scoring.likelihood import cloze_log_probabilities, token_log_probabilities


def word_log_probabilities(
    model: AnalysedModel, sentences: Sequence[SentenceWords], word_indices: Sequence[int]
) -> FloatArray:
    """Return the log-probability of one word of each sentence, in nats, (N,).

    All its tokens are masked at once; a causal model predicts them from the left context.
    """
    texts = encode_sentences(model, sentences)
    language_model, tokenizer = model.text_model.model, model.tokenizer
    sequences = [text.token_ids for text in texts]
    positions = [
        np.flatnonzero(text.word_ids == n) for text, n in zip(texts, word_indices, strict=True)
    ]
    spans = [slice(int(of_word[0]), int(of_word[-1]) + 1) for of_word in positions]
    if model.text_model.is_causal:
        # The first token has no prediction.
        scores = token_log_probabilities(language_model, sequences, tokenizer.special_tokens.pad)
        scores = [s[p.start - 1 : p.stop - 1] for s, p in zip(scores, spans, strict=True)]
    else:
        scores = cloze_log_probabilities(language_model, tokenizer, sequences, spans)
    return np.array([sum(of_word) for of_word in scores])
