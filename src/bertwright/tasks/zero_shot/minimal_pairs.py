"""Minimal pairs: which of two sentences does a model score higher? (Warstadt et al. 2020).

Scores come from ``TextModel.score``, in float32. If the two scores differ by no more than float32
rounding allows, the pair is a tie, which counts as wrong and is reported.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.significance import bootstrap_ratio
from bertwright.data.readers.text_lines import (
    format_suffix,
    parse_json_object,
    read_located_lines,
    require_key,
)
from bertwright.models.text_model import TextModel


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences with a minimal difference, one of them acceptable."""

    good: str
    bad: str
    paradigm: str
    """The phenomenon; defaults to the name of the file."""


TIE_TOLERANCE = 1e-4
"""Possible sum of float32 rounding errors over a sentence, in nats."""

CHUNK_SIZE = 256
"""Number of sentences scored together."""


@dataclass(frozen=True)
class PairCounts:
    """The numbers of pairs, of correct pairs and of ties."""

    num_pairs: int
    num_correct: int
    num_ties: int

    @property
    def accuracy(self) -> float:
        """The fraction of correct pairs."""
        return self.num_correct / self.num_pairs

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"accuracy": self.accuracy, "ties": self.num_ties, "pairs": self.num_pairs}


@dataclass(frozen=True)
class MinimalPairResult:
    """The counts of all pairs, and of each paradigm in the order of the file."""

    total: PairCounts
    by_paradigm: dict[str, PairCounts]

    @property
    def interval(self) -> list[float] | None:
        """The 95 % bootstrap interval of the accuracy over paradigms.

        Pairs of the same paradigm are similar, so paradigms are resampled. None for a single
        paradigm.
        """
        paradigms = list(self.by_paradigm.values())
        interval = bootstrap_ratio(
            [counts.num_correct for counts in paradigms], [counts.num_pairs for counts in paradigms]
        )
        return [interval.low, interval.high] if len(paradigms) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``minimal-pairs --json``."""
        paradigms = {name: scores.as_dict() for name, scores in self.by_paradigm.items()}
        return {**self.total.as_dict(), "interval": self.interval, "paradigms": paradigms}


def score_minimal_pairs(
    model: TextModel, pairs: Sequence[MinimalPair], language: str | None = None
) -> MinimalPairResult:
    """Score every sentence once, and compare the two sentences of every pair."""
    margins = pair_margins(model, pairs, language)
    by_paradigm: dict[str, list[float]] = {}
    for pair, margin in zip(pairs, margins, strict=True):
        by_paradigm.setdefault(pair.paradigm, []).append(margin)
    return MinimalPairResult(
        _count_pairs(margins), {name: _count_pairs(group) for name, group in by_paradigm.items()}
    )


def pair_margins(
    model: TextModel, pairs: Sequence[MinimalPair], language: str | None = None
) -> list[float]:
    """Return how much higher the good sentence of each pair scores than the bad one, in nats.

    ``language`` is the language of the sentences, for an encoder with language embeddings. Errors:
    UserError for a model without a language-model head, for items, or without that language.
    """
    model.require_text_tokenizer("minimal-pairs")
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    scores: dict[str, float] = {}
    for start in range(0, len(texts), CHUNK_SIZE):
        chunk = texts[start : start + CHUNK_SIZE]
        scores.update(zip(chunk, model.score(chunk, language), strict=True))
    return [scores[pair.good] - scores[pair.bad] for pair in pairs]


def _count_pairs(margins: Sequence[float]) -> PairCounts:
    num_correct = sum(margin > TIE_TOLERANCE for margin in margins)
    num_ties = sum(abs(margin) <= TIE_TOLERANCE for margin in margins)
    return PairCounts(len(margins), num_correct, num_ties)


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """Read the pairs in a file (``.jsonl`` or ``.jsonl.gz``), or in all such files of a folder.

    Errors: UserError, with file, line and key.
    """
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if format_suffix(file) == ".jsonl")
    pairs = [
        _parse_pair(file, location, line)
        for file in files
        for location, line in read_located_lines(file)
        if line.strip()
    ]
    if not pairs:
        raise UserError(f"{path} has no minimal pairs")
    return pairs


def first_of_each_paradigm(pairs: Iterable[MinimalPair], max_pairs: int) -> list[MinimalPair]:
    """Return the first ``max_pairs`` pairs of every paradigm."""
    counts: Counter[str] = Counter()
    selected: list[MinimalPair] = []
    for pair in pairs:
        counts[pair.paradigm] += 1
        if counts[pair.paradigm] <= max_pairs:
            selected.append(pair)
    return selected


def _parse_pair(file: Path, location: str, line: str) -> MinimalPair:
    record = parse_json_object(location, line)
    good, bad = (require_key(location, record, key) for key in ("sentence_good", "sentence_bad"))
    return MinimalPair(good, bad, str(record.get("UID", file.name.split(".")[0])))
