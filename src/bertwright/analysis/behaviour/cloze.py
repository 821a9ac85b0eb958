"""Log-probabilities of words in their sentences."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts, missing_whole_texts
from bertwright.models.scoring.likelihood import cloze_log_probabilities, token_log_probabilities
from bertwright.tasks.formats.examples import TaggedSentence

SentenceWords = tuple[str, ...]


def missing_cloze(inputs: AnalysisInput, sentences: Sequence[SentenceWords]) -> str | None:
    """Return why the words of these sentences cannot be scored, or None."""
    if not inputs.model.text_model.has_lm_head:
        return "the model has no language-model head"
    return missing_whole_texts(inputs.model, _tagged(sentences))


def word_log_probabilities(
    model: AnalysedModel, sentences: Sequence[SentenceWords], word_indices: Sequence[int]
) -> NDArray[np.float64]:
    """Return the log-probability of one word of each sentence, in nats, (N,).

    All its tokens are masked at once; a causal model predicts them from the left context.
    """
    texts = encode_texts(model, _tagged(sentences))
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


def _tagged(sentences: Sequence[SentenceWords]) -> list[TaggedSentence]:
    return [TaggedSentence(words, words) for words in sentences]
