"""Scores of rankings for queries whose relevant texts are known, with intervals over queries."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.core.significance import ConfidenceInterval, bootstrap_statistic
from bertwright.data.document import ReadCounts
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_rows
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


def ranking_scores(
    rankings: Sequence[Sequence[str]], relevant: Sequence[Collection[str]]
) -> dict[str, ConfidenceInterval]:
    """Return each metric over queries, with its bootstrap interval.

    ``rankings`` hold the ids of the texts found for each query, best first; ``relevant`` the ids of
    those that should be. Every relevant text counts the same; a query without any is left out.
    """
    pairs = [_judge(ids, wanted) for ids, wanted in zip(rankings, relevant, strict=True)]
    judgements, scores = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    intervals: dict[str, ConfidenceInterval] = {}
    for name, metric in METRICS.items():
        sums = metric.sums(judgements, scores)
        intervals[name] = bootstrap_statistic(sums.statistic, sums.values)[0]
    return intervals


def _judge(ids: Sequence[str], relevant: Collection[str]) -> tuple[Any, Any]:
    """Return the relevance and scores of the texts that were found, and of those that were not.

    Irrelevant texts come before relevant ones that were not found, so that the latter lie beyond
    the depth of every metric.
    """
    found = [float(text in relevant) for text in ids[:DEPTH]]
    num_missing = len({*relevant} - {*ids[:DEPTH]})
    judgement = np.array(found + [0.0] * DEPTH + [1.0] * num_missing)
    return judgement, -np.arange(len(judgement), dtype=np.float64)


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
            yield JudgedQuery(text.strip(), _parse_ids(relevant, location))


def _parse_ids(value: Any, location: str) -> frozenset[str]:
    items: Any = value.split() if isinstance(value, str) else value
    items = [items] if isinstance(items, int) else items
    if not isinstance(items, list) or not items or not all(isinstance(i, str | int) for i in items):
        raise UserError(f"{location}: {RELEVANT_COLUMN!r} is not a list of ids: {quote(value)}")
    return frozenset(map(str, items))
