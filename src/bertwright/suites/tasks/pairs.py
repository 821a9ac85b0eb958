"""Minimal pairs: whether a language model prefers the sentence that is right, without training."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any, ClassVar, Literal
from zlib import crc32

import numpy as np
from pydantic import Field, field_validator

from bertwright.core.config import Settings, quote
from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.suites.tasks.suite_task import (
    Predictions,
    PreparedTask,
    SuiteTask,
    require_data,
)
from bertwright.tasks.formats.tables import read_table
from bertwright.tasks.metrics.metrics import MetricSums, mean_sums
from bertwright.tasks.zero_shot.minimal_pairs import (
    TIE_TOLERANCE,
    MinimalPair,
    first_of_each_paradigm,
    pair_margins,
    read_minimal_pairs,
)

_ARTICLE_CHOICE = re.compile(r"\(a\|an\) (?=(\w))")

MASK = "[MASK]"


@dataclass(frozen=True)
class PreparedPairs(PreparedTask):
    """Pairs of sentences; a prediction is the margin in nats by which the good one scores higher.

    Attributes:
        resamples_paradigms: whether the interval is over paradigms instead of pairs, because the
            pairs of a paradigm are alike.
    """

    pairs: Sequence[MinimalPair]
    resamples_paradigms: bool

    @property
    def metric(self) -> str:
        return "accuracy"

    @property
    def method(self) -> str:
        return "zero-shot: the right sentence has the higher (pseudo-)log-likelihood"

    @property
    def unit(self) -> str:
        return "pairs"

    @property
    def chance(self) -> float | None:
        return 0.5

    @property
    def num_examples(self) -> int:
        return len(self.pairs)

    def predict(self, model: TextModel) -> Predictions:
        return pair_margins(model, self.pairs)

    def sums(self, predictions: Predictions) -> MetricSums:
        correct = np.asarray(predictions, np.float64) > TIE_TOLERANCE
        sums = mean_sums(correct.astype(np.float64).tolist())
        if not self.resamples_paradigms:
            return sums
        groups = self._indices_by_paradigm().values()
        by_paradigm = np.stack([sums.values[indices].sum(0) for indices in groups])
        return MetricSums(by_paradigm, sums.statistic)

    def parts(self, predictions: Predictions) -> Mapping[str, float]:
        correct = np.asarray(predictions, np.float64) > TIE_TOLERANCE
        groups = self._indices_by_paradigm()
        return {name: float(correct[indices].mean()) for name, indices in groups.items()}

    def _indices_by_paradigm(self) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {}
        for index, pair in enumerate(self.pairs):
            groups.setdefault(pair.paradigm, []).append(index)
        return groups


class PairTask(SuiteTask):
    """A task of minimal pairs."""

    resamples_paradigms: ClassVar[bool] = False

    @abstractmethod
    def read_pairs(self, data: Path) -> list[MinimalPair]:
        """Return the pairs; UserError for an invalid file."""

    def prepare(self, data: Path) -> PreparedTask:
        pairs = self.read_pairs(data)[: self.max_examples]
        if not pairs:
            raise UserError(f"{', '.join(map(str, self.files(data)))}: no pairs")
        return PreparedPairs(pairs, self.resamples_paradigms)


class BlimpTask(PairTask):
    """Pairs in the format of BLiMP: JSON lines with ``sentence_good``, ``sentence_bad``, ``UID``.

    The interval is over paradigms.

    Attributes:
        file: a file, or a folder of them.
        pairs_per_paradigm: number of pairs of each paradigm, the first; None for all.
    """

    kind: Literal["minimal-pairs"] = "minimal-pairs"
    file: str
    pairs_per_paradigm: int | None = Field(default=None, ge=1)
    resamples_paradigms: ClassVar[bool] = True

    def files(self, data: Path) -> list[Path]:
        return [require_data(data, self.file)]

    def read_pairs(self, data: Path) -> list[MinimalPair]:
        pairs = read_minimal_pairs(data / self.file)
        if self.pairs_per_paradigm is None:
            return pairs
        return first_of_each_paradigm(pairs, self.pairs_per_paradigm)


class PairTemplate(Settings):
    """Two sentences made of the columns of a table; ``(a|an)`` becomes the article that fits.

    Attributes:
        file: TSV, CSV, JSON lines or Parquet, with a header.
        good, bad: templates such as ``{context} {target}.``
    """

    file: str
    good: str
    bad: str

    @field_validator("good", "bad")
    @classmethod
    def _require_columns(cls, template: str) -> str:
        try:
            fields = [field for field in Formatter().parse(template) if field[1] is not None]
        except ValueError as error:
            raise ValueError(f"{template!r} is no template: {error}") from None
        if not fields or any(not name for _, name, _, _ in fields):
            raise ValueError(f"{template!r} names no column: write a column as {{column}}")
        if any(spec or conversion for _, _, spec, conversion in fields):
            raise ValueError(f"{template!r} formats a column: write it as {{column}}")
        return template

    def pairs(self, data: Path, paradigm: str) -> list[MinimalPair]:
        """Return a pair for each row."""
        columns = sorted({*_column_names(self.good), *_column_names(self.bad)})
        return [
            MinimalPair(_fill(self.good, row, location), _fill(self.bad, row, location), paradigm)
            for location, row in read_table(data / self.file, None, columns)
        ]


class PairTemplatesTask(PairTask):
    """Pairs of sentences made from tables; ``parts`` has a template for each part by name."""

    kind: Literal["pair-templates"] = "pair-templates"
    parts: dict[str, PairTemplate] = Field(min_length=1)

    def files(self, data: Path) -> list[Path]:
        names = dict.fromkeys(part.file for part in self.parts.values())
        return [require_data(data, name) for name in names]

    def read_pairs(self, data: Path) -> list[MinimalPair]:
        return [pair for name, part in self.parts.items() for pair in part.pairs(data, name)]


class FactsTask(PairTask):
    """Facts in the format of LAMA, against the same sentence with another answer of the relation.

    The wrong answer is that of another fact, so that an answer is wrong as often as it is right.

    Attributes:
        file: JSON lines with ``masked_sentences``, ``obj_label`` and ``relation``.
        facts_per_relation: number of facts of each relation, the first; None for all.
    """

    kind: Literal["facts"] = "facts"
    file: str
    facts_per_relation: int | None = Field(default=None, ge=2)

    def files(self, data: Path) -> list[Path]:
        return [require_data(data, self.file)]

    def read_pairs(self, data: Path) -> list[MinimalPair]:
        columns = ["masked_sentences", "obj_label", "relation"]
        by_relation: dict[str, list[tuple[str, str]]] = {}
        for location, row in read_table(data / self.file, None, columns):
            sentences: Any = row["masked_sentences"]
            sentence = sentences[0] if isinstance(sentences, list) and sentences else sentences
            if not isinstance(sentence, str) or MASK not in sentence:
                raise UserError(f"{location}: masked_sentences holds no sentence with {MASK}")
            relation, answer = (_text_in(row, name, location) for name in ("relation", "obj_label"))
            by_relation.setdefault(relation, []).append((sentence, answer))
        pairs: list[MinimalPair] = []
        for relation, facts in by_relation.items():
            for sentence, answer in facts[: self.facts_per_relation]:
                others = [other for _, other in facts if other != answer]
                if others:
                    wrong = others[crc32(sentence.encode()) % len(others)]
                    good, bad = (sentence.replace(MASK, word) for word in (answer, wrong))
                    pairs.append(MinimalPair(good, bad, relation))
        return pairs


def _column_names(template: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def _fill(template: str, row: Mapping[str, Any], location: str) -> str:
    """Return a sentence without double spaces, with the article that fits the next letter."""
    parts: list[str] = []
    for text, name, _, _ in Formatter().parse(template):
        # A column may be called a.b or 0, which str.format would read as an attribute or a number.
        parts += [text, "" if name is None else _text_in(row, name, location)]
    return _ARTICLE_CHOICE.sub(
        lambda match: "an " if match[1].lower() in "aeiou" else "a ",
        " ".join("".join(parts).split()),
    )


def _text_in(row: Mapping[str, Any], column: str, location: str) -> str:
    """Return the text or number in a column; UserError for anything else."""
    value = row[column]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{location}: {column!r} is not a text: {quote(value)}")
    return str(value)
