"""How well a model translates: pairs of texts, what is said of their first sides, and BLEU, which
is computed of counts that are summed over texts (Papineni et al. 2002)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.errors import MissingExtra
from bertwright.examples.noising.translation import Translation
from bertwright.objectives.denoising import Denoising
from bertwright.tasks.formats.examples import Example

ORDERS = 4
"""Of the n-grams that are counted."""

Counts = NDArray[np.float64]
"""(..., 2 ORDERS + 2): n-grams that are right, all n-grams, the length of what was said, and of
what is right."""


@dataclass(frozen=True)
class Translating:
    """Pairs, of which the second side is asked for; what is longer than ``longest`` pieces is
    cut."""

    subject: Subject
    texts: Sequence[ReadText]
    longest: int = 64

    def lacks(self) -> str | None:
        """Why nothing can be translated, in words."""
        asked = self.subject.text_model.model.recipe.objectives.values()
        if not any(isinstance(o, Denoising) and isinstance(o.noising, Translation) for o in asked):
            return "it does not translate"
        if not all(isinstance(t.source, Example) and t.source.second for t in self.texts):
            return "it needs translations: give a file with a pair on each line, a tab between"
        return None

    def pairs(self) -> list[tuple[str, str]]:
        """Texts and their translations."""
        sources = [text.source for text in self.texts]
        return [(s.first, s.second or "") for s in sources if isinstance(s, Example)]

    def said(self) -> list[str]:
        """What the model says of every text, with whatever is gated or replaced."""
        prompts = [first for first, _ in self.pairs()]
        found = self.subject.text_model.generate(
            prompts, temperature=0, max_new_tokens=self.longest
        )
        return [own.text for own in found]

    def counted(self) -> Counts:
        """The counts of what it says, of every text."""
        rights = [second for _, second in self.pairs()]
        return np.stack([counts(*both) for both in zip(self.said(), rights, strict=True)])


def counts(said: str, right: str) -> Counts:
    """Those of one text."""
    found = sacrebleu().sentence_score(said, [right])
    return np.array([*found.counts, *found.totals, found.sys_len, found.ref_len], np.float64)


def bleu(sums: Counts) -> Counts:
    """BLEU, of 100, of counts as they are summed over texts (..., 2 ORDERS + 2): (...)."""
    metric, rows = sacrebleu(), sums.reshape(-1, sums.shape[-1])
    scores = [
        metric.compute_bleu(
            own[:ORDERS].tolist(), own[ORDERS:-2].tolist(), int(own[-2]), int(own[-1]), "exp"
        ).score
        for own in rows
    ]
    return np.array(scores).reshape(sums.shape[:-1])


def sacrebleu() -> Any:
    """BLEU as sacrebleu has it."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtra("sacrebleu", "translation") from error
    return BLEU(effective_order=True)
