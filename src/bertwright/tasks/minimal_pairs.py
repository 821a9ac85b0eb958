"""Which of two sentences does a model find more likely? (Warstadt et al. 2020).

Scores are those of ``TextModel.score``, in float32. A pair whose scores do not differ by more than
that precision allows is a tie, and a tie is not an answer: it counts as wrong and is reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.model.text_model import TextModel
from bertwright.significance import of_ratio
from bertwright.tasks.formats.minimal_pairs import MinimalPair

TIE = 1e-4
"""Nats: what rounding in float32 may add up to over a sentence."""

AT_ONCE = 256
"""Sentences that are scored together."""


@dataclass(frozen=True)
class PairScores:
    """What a model said of some pairs: how many there were, right ones, and ties."""

    pairs: int
    right: int
    ties: int

    @property
    def accuracy(self) -> float:
        """The share of right ones."""
        return self.right / self.pairs

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"accuracy": self.accuracy, "ties": self.ties, "pairs": self.pairs}


@dataclass(frozen=True)
class MinimalPairScores:
    """All pairs together, and those of each paradigm in the order of the file."""

    all: PairScores
    paradigms: dict[str, PairScores]

    @property
    def interval(self) -> list[float] | None:
        """Where the accuracy would lie with other paradigms, in 95 of 100 cases: the pairs of one
        are alike. None for a single paradigm."""
        several = list(self.paradigms.values())
        found = of_ratio([own.right for own in several], [own.pairs for own in several])
        return [found.low, found.high] if len(several) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """What ``minimal-pairs --json`` prints."""
        paradigms = {name: scores.as_dict() for name, scores in self.paradigms.items()}
        return {**self.all.as_dict(), "interval": self.interval, "paradigms": paradigms}


def score_minimal_pairs(
    model: TextModel, pairs: Sequence[MinimalPair], language: str | None = None
) -> MinimalPairScores:
    """Score every sentence once, and compare the two of every pair.

    ``language`` is that of the sentences, for an encoder with a vector for each. Errors: UserError
    for a model without an output over the vocabulary, over items, or without that language.
    """
    model.require_words("minimal-pairs")
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    scores: dict[str, float] = {}
    for start in range(0, len(texts), AT_ONCE):
        some = texts[start : start + AT_ONCE]
        scores.update(zip(some, model.score(some, language), strict=True))
    leads = [scores[pair.good] - scores[pair.bad] for pair in pairs]
    by_paradigm: dict[str, list[float]] = {}
    for pair, lead in zip(pairs, leads, strict=True):
        by_paradigm.setdefault(pair.paradigm, []).append(lead)
    return MinimalPairScores(_judged(leads), {n: _judged(some) for n, some in by_paradigm.items()})


def _judged(leads: Sequence[float]) -> PairScores:
    right = sum(lead > TIE for lead in leads)
    return PairScores(len(leads), right, sum(abs(lead) <= TIE for lead in leads))
