"""Translation quality by BLEU, from counts that are summed over texts (Papineni et al. 2002)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText
from bertwright.batches.noising.translation import Translation
from bertwright.core.errors import MissingExtra
from bertwright.tasks.formats.examples import Example

MAX_NGRAM = 4
"""Largest n of the counted n-grams."""

BleuCounts = NDArray[np.float64]
"""(..., 2 MAX_NGRAM + 2): matching n-grams, all n-grams, lengths of translation and reference."""


@dataclass(frozen=True)
class TranslationProbe:
    """Pairs of texts: sources, translated to at most ``max_new_tokens``, and references."""

    model: AnalysedModel
    texts: Sequence[AnalysedText]
    max_new_tokens: int = 64

    def not_applicable(self) -> str | None:
        """Return why there is nothing to translate, or None."""
        objectives = self.model.text_model.model.recipe.objectives.values()
        if not any(isinstance(o.decoder_noising, Translation) for o in objectives):
            return "the model does not translate"
        if not all(isinstance(t.source, Example) and t.source.pair for t in self.texts):
            return "it needs translations: give a file with a pair per line, separated by a tab"
        return None

    def pairs(self) -> list[tuple[str, str]]:
        """Return the source and reference texts."""
        sources = [text.source for text in self.texts]
        return [(s.text, s.pair or "") for s in sources if isinstance(s, Example)]

    def translate(self) -> list[str]:
        """Translate every text with the model as it is now."""
        prompts = [first for first, _ in self.pairs()]
        translations = self.model.text_model.generate(
            prompts, temperature=0, max_new_tokens=self.max_new_tokens
        )
        return [translation.text for translation in translations]

    def bleu_counts(self) -> BleuCounts:
        """Return the BLEU counts of every text."""
        references = [second for _, second in self.pairs()]
        pairs = zip(self.translate(), references, strict=True)
        return np.stack([sentence_bleu_counts(*pair) for pair in pairs])


def sentence_bleu_counts(translation: str, reference: str) -> BleuCounts:
    """Return the BLEU counts of one text."""
    score = load_sacrebleu().sentence_score(translation, [reference])
    return np.array([*score.counts, *score.totals, score.sys_len, score.ref_len], np.float64)


def bleu(counts: BleuCounts) -> BleuCounts:
    """Return BLEU, 0 to 100, from counts summed over texts (..., 2 MAX_NGRAM + 2): (...)."""
    metric, rows = load_sacrebleu(), counts.reshape(-1, counts.shape[-1])
    scores = [
        metric.compute_bleu(
            row[:MAX_NGRAM].tolist(), row[MAX_NGRAM:-2].tolist(), int(row[-2]), int(row[-1]), "exp"
        ).score
        for row in rows
    ]
    return np.array(scores).reshape(counts.shape[:-1])


def load_sacrebleu() -> Any:
    """Load the BLEU metric of sacrebleu."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtra("sacrebleu", "translation") from error
    return BLEU(effective_order=True)
