"""Scores of rankings for queries whose relevant texts are known, with intervals over queries."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.significance import ConfidenceInterval
from bertwright.data.document import ReadCounts
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_rows
from bertwright.tasks.evaluation.bootstrap import score_interval
from bertwright.tasks.metrics.metrics import MetricSums
from bertwright.tasks.metrics.ranking import RANKING_METRICS, recall_at

DEPTH = 100
"""Number of texts of a ranking that are scored."""

METRICS = {**RANKING_METRICS, f"recall@{DEPTH}": recall_at(DEPTH)}

RELEVANT_COLUMN = "relevant"


@dataclass(frozen=True)
class JudgedQuery:
    """A query with the ids of its relevant texts."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class RetrievalTask:
    """Texts with ids, and queries with the ids of their relevant texts."""

    name: str
    texts: Sequence[IdentifiedText]
    queries: Sequence[JudgedQuery]


def ranking_scores(
    rankings: Sequence[Sequence[str]], relevant: Sequence[Collection[str]]
) -> dict[str, ConfidenceInterval]:
    """Return each metric over queries, with its bootstrap interval.

    ``rankings`` hold the ids of the texts found for each query, best first; ``relevant`` the ids of
    those that should be. Every relevant text counts the same; a query without any is left out.
    """
    intervals: dict[str, ConfidenceInterval] = {}
    for name in METRICS:
        intervals[name] = score_interval(ranking_sums(name, rankings, relevant))
    return intervals


def ranking_sums(
    metric: str, rankings: Sequence[Sequence[str]], relevant: Sequence[Collection[str]]
) -> MetricSums:
    """Return the sums of one metric over queries; see :func:`ranking_scores`."""
    judgements = [_relevance(*pair) for pair in zip(rankings, relevant, strict=True)]
    scores = [-np.arange(len(judgement), dtype=np.float64) for judgement in judgements]
    return METRICS[metric].sums(judgements, scores)


def _relevance(ids: Sequence[str], relevant: Collection[str]) -> NDArray[np.float64]:
    """Return the relevance of the texts of a ranking, and then of the relevant ones it lacks.

    Irrelevant texts stand between them, so that the missing ones lie beyond the depth of every
    metric.
    """
    hits = [float(text in relevant) for text in ids[:DEPTH]]
    num_missing = len({*relevant} - {*ids[:DEPTH]})
    return np.array(hits + [0.0] * DEPTH + [1.0] * num_missing)


def read_judged_queries(file: Path, column: str, format: str | None) -> Iterator[JudgedQuery]:
    """Yield the queries of a table with a column ``relevant``: an id, or a list of ids.

    In CSV and TSV, white space separates ids. Errors: UserError for plain text, and for a row
    without relevant texts.
    """
    for source in find_sources([file], column, format):
        if source.format == "txt":
            raise UserError(
                f"{source.name} is plain text: relevant texts need a table with the columns "
                f"{column} and {RELEVANT_COLUMN}"
            )
        table = replace(source, optional_columns=(RELEVANT_COLUMN,))
        for location, (text, *_, relevant) in read_rows(table, ReadCounts()):
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"{location}: {column!r} is not a text: {quote(text)}")
            is_separated = source.format in ("csv", "tsv")
            yield JudgedQuery(text.strip(), _parse_ids(relevant, is_separated, location))


def _parse_ids(value: Any, is_separated: bool, location: str) -> frozenset[str]:
    if value is None:
        raise UserError(f"{location}: no column {RELEVANT_COLUMN!r} with ids of relevant texts")
    items: Any = value.split() if isinstance(value, str) and is_separated else value
    items = [items] if isinstance(items, int) or (isinstance(items, str) and items) else items
    if not isinstance(items, list) or not items or not all(isinstance(i, str | int) for i in items):
        raise UserError(f"{location}: {RELEVANT_COLUMN!r} is not a list of ids: {quote(value)}")
    return frozenset(map(str, items))
