"""Metrics agree with independent implementations."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.functional import classification, regression

from bertwright.tasks.outputs import OutputType

PAIRS_OF_CLASSES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40
)

NUMBERS = st.one_of(
    st.integers(-5, 5).map(float), st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
)

PAIRS_OF_NUMBERS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=40)


def our_metric(output_type: str, name: str, pairs: list[tuple[Any, Any]]) -> float:
    references, predictions = zip(*pairs, strict=True)
    return OutputType.parse(output_type).metric(name)(references, predictions)


def columns(pairs: list[tuple[float, float]], kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return references and predictions (N,)."""
    references, predictions = torch.tensor(pairs, dtype=kind).T
    return references, predictions


@given(PAIRS_OF_CLASSES)
def test_classification_metrics_match_torchmetrics(pairs: list[tuple[int, int]]) -> None:
    references, predictions = columns(pairs, torch.int64)
    names = [(str(a), str(b)) for a, b in pairs]
    accuracy = classification.multiclass_accuracy(predictions, references, 4, average="micro")
    assert our_metric("class", "accuracy", names) == pytest.approx(float(accuracy), abs=1e-6)
    by_class = classification.multiclass_f1_score(predictions, references, 4, average="none")
    expected = by_class[references.unique()].mean()
    assert our_metric("class", "macro-f1", names) == pytest.approx(float(expected), abs=1e-6)


@given(PAIRS_OF_CLASSES)
def test_positive_f1_matches_torchmetrics(pairs: list[tuple[int, int]]) -> None:
    two = [(a % 2, b % 2) for a, b in pairs]
    references, predictions = columns(two, torch.int64)
    expected = classification.binary_f1_score(predictions, references)
    names = [(str(a), str(b)) for a, b in two]
    assert our_metric("class", "positive-f1", names) == pytest.approx(float(expected), abs=1e-6)


@given(PAIRS_OF_CLASSES)
def test_matthews_matches_torchmetrics(pairs: list[tuple[int, int]]) -> None:
    if min(len(set(column)) for column in zip(*pairs, strict=True)) < 2:
        return  # undefined: 0 for us, as in GLUE
    references, predictions = columns(pairs, torch.int64)
    expected = classification.multiclass_matthews_corrcoef(predictions, references, 4)
    names = [(str(a), str(b)) for a, b in pairs]
    assert our_metric("class", "matthews", names) == pytest.approx(float(expected), abs=1e-6)


@given(PAIRS_OF_NUMBERS)
def test_correlations_match_torchmetrics(pairs: list[tuple[float, float]]) -> None:
    if min(len(set(column)) for column in zip(*pairs, strict=True)) < 2:
        return  # undefined: 0 for us
    references, predictions = columns(pairs, torch.float64)
    expected = float(regression.pearson_corrcoef(predictions, references))
    assert our_metric("number", "pearson", pairs) == pytest.approx(expected, abs=1e-6)
    # torchmetrics ranks in float32 and clamps deviations: its result is approximate.
    near = float(regression.spearman_corrcoef(predictions, references))
    spearman = our_metric("number", "spearman", pairs)
    assert spearman == pytest.approx(near, abs=1e-5)
    expected = float(np.corrcoef(mean_ranks(references), mean_ranks(predictions))[0, 1])
    assert spearman == pytest.approx(expected, abs=1e-6)


def mean_ranks(values: Tensor) -> Tensor:
    """Return the mean rank (N,) of each value."""
    less, equal = values[:, None] > values, values[:, None] == values
    return less.sum(1) + (equal.sum(1) + 1) / 2
