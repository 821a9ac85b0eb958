"""Results of analyses: findings with their uncertainty, arrays, and the files for both.

Plots use only these files.
"""

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_file, loads_json, write_text
from bertwright.core.significance import (
    ConfidenceInterval,
    FloatArray,
    benjamini_hochberg,
    bootstrap_difference,
    bootstrap_ratio,
    bootstrap_ratios,
    sign_flip_test,
)

Array = NDArray[Any]


@dataclass(frozen=True)
class BaselineValue:
    """A named reference value of a finding."""

    name: str
    value: float


@dataclass(frozen=True)
class Count:
    """A number of things out of all of them, such as 31 of 72 heads."""

    number: int
    total: int
    unit: str

    def __str__(self) -> str:
        return f"{self.number} of {self.total} {self.unit}"


@dataclass(frozen=True)
class AnalysisFinding:
    """One value.

    Attributes:
        layer, head: Counted from 0; None for a value over all layers or heads.
        interval: 95 % interval over ``num_units`` texts; None if nothing was sampled.
        p_value: Probability of such a value by chance; ``adjusted_p_value`` for ``num_tests``.
        difference_interval: Interval of the difference from the baseline.
        note: Remark in words.
        count: What the value, a fraction, was counted from; None if it was not counted.
        includes_embeddings: True if layer 0 is the embeddings instead of the first block.
    """

    metric: str
    value: float
    layer: int | None = None
    head: int | None = None
    interval: tuple[float, float] | None = None
    num_units: int | None = None
    baseline: BaselineValue | None = None
    p_value: float | None = None
    adjusted_p_value: float | None = None
    num_tests: int | None = None
    difference_interval: tuple[float, float] | None = None
    note: str | None = None
    count: Count | None = None
    includes_embeddings: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-compatible data; layers and heads are also given counted from 1."""
        data = {name: value for name, value in vars(self).items() if value is not None}
        del data["includes_embeddings"]
        if self.baseline is not None:
            data["baseline"] = dict(vars(self.baseline))
        if self.count is not None:
            data["count"] = dict(vars(self.count))
        if self.layer is not None:
            data["layer_from_1"] = self.layer + (0 if self.includes_embeddings else 1)
        if self.head is not None:
            data["head_from_1"] = self.head + 1
        return data


def interval_finding(
    metric: str,
    interval: ConfidenceInterval,
    layer: int | None = None,
    head: int | None = None,
    baseline: BaselineValue | None = None,
    **fields: Any,
) -> AnalysisFinding:
    """Return a finding with the value, interval and units of ``interval``."""
    bounds = interval_bounds(interval)
    return AnalysisFinding(
        metric, interval.value, layer, head, bounds, interval.num_units, baseline, **fields
    )


def adjust_p_values(
    findings: Sequence[AnalysisFinding],
    correction: Callable[[ArrayLike], FloatArray] = benjamini_hochberg,
) -> list[AnalysisFinding]:
    """Adjust the p-values of findings for the number of tests."""
    adjusted = correction([finding.p_value or 0.0 for finding in findings]) if findings else ()
    return [
        replace(finding, adjusted_p_value=float(p_value), num_tests=len(findings))
        for finding, p_value in zip(findings, adjusted, strict=True)
    ]


Ratio = NDArray[Any] | tuple[ArrayLike, ArrayLike]
"""Numerators and denominators, (N,) each; or a single array (N,), whose mean is taken."""


class Findings(list[AnalysisFinding]):
    """Findings on the same texts, whose bootstrap intervals share a seed.

    ``defaults`` are fields set in all of them.
    """

    def __init__(self, seed: int, **defaults: Any) -> None:
        super().__init__()
        self.seed, self.defaults = seed, defaults

    def add_value(self, metric: str, value: float, **fields: Any) -> None:
        """Add a value without an interval."""
        self.append(AnalysisFinding(metric, float(value), **{**self.defaults, **fields}))

    def add_interval(
        self, metric: str, interval: ConfidenceInterval, *at: Any, **fields: Any
    ) -> None:
        """Add a finding made by :func:`interval_finding`."""
        self.append(interval_finding(metric, interval, *at, **{**self.defaults, **fields}))

    def add_ratio(
        self,
        metric: str,
        numerators: ArrayLike,
        denominators: ArrayLike | None = None,
        **fields: Any,
    ) -> None:
        """Add a ratio of sums over texts, or a mean over texts, with its bootstrap interval."""
        interval = bootstrap_ratio(numerators, denominators, seed=self.seed)
        self.add_interval(metric, interval, **fields)

    def add_difference(self, metric: str, first: Ratio, second: Ratio, **fields: Any) -> None:
        """Add the difference of two ratios over the same texts, with its bootstrap interval."""
        pairs = (r if isinstance(r, tuple) else (r, np.ones(len(r))) for r in (first, second))
        self.add_interval(metric, bootstrap_difference(*pairs, seed=self.seed), **fields)

    def add_loss_increases(
        self,
        metric: str,
        losses: NDArray[np.float64],
        full_loss: NDArray[np.float64],
        num_targets: NDArray[np.float64],
        removed: Iterable[tuple[int, int | None]],
    ) -> None:
        """Add the increases of ``losses`` (K, N) over ``full_loss`` (N,), with their p-values.

        ``removed`` holds the layer and head removed in each case; the p-values are adjusted
        together.
        """
        full = BaselineValue("loss of the full model", float(full_loss.sum() / num_targets.sum()))
        increases = Findings(self.seed)
        for (layer, head), loss in zip(removed, losses, strict=True):
            increases.add_difference(
                metric,
                (loss, num_targets),
                (full_loss, num_targets),
                layer=layer,
                head=head,
                baseline=full,
                p_value=sign_flip_test(loss - full_loss, seed=self.seed),
            )
        self += adjust_p_values(increases)

    def add_by_head(
        self,
        metrics: Sequence[str],
        values: NDArray[np.float64],
        baseline: tuple[str, NDArray[np.float64]] | None = None,
    ) -> None:
        """Add means over texts of ``values`` (N, layers, heads, K) for K metrics.

        ``baseline`` is a name and its values (layers, heads, K).
        """
        intervals = bootstrap_ratios(values.reshape(len(values), -1), seed=self.seed)
        for at, interval in zip(np.ndindex(*values.shape[1:]), intervals, strict=True):
            reference = baseline and BaselineValue(baseline[0], float(baseline[1][at]))
            self.add_interval(metrics[int(at[2])], interval, at[0], at[1], reference)


def interval_bounds(interval: ConfidenceInterval) -> tuple[float, float] | None:
    """Return the bounds of an interval; None if it has none."""
    return None if np.isnan(interval.low) else (interval.low, interval.high)


@dataclass(frozen=True)
class AnalysisResult:
    """The findings and arrays of an analysis."""

    findings: Sequence[AnalysisFinding]
    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True)
class StoredResult:
    """A result read from its files; ``metadata`` describes the model, texts and settings."""

    metadata: Mapping[str, Any]
    findings: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, Array]

    def overall_finding(self, metric: str) -> Mapping[str, Any]:
        """Return the finding of a metric over all layers and heads."""
        return next(f for f in self.findings if f["metric"] == metric and "layer" not in f)

    def computed_finding(self, value: float) -> Mapping[str, Any]:
        """Return a finding for a value computed from other findings; its units are the texts."""
        return {"value": value, "num_units": self.num_texts}

    def counted_finding(
        self, number: int, total: int, unit: str, as_fraction: bool = False
    ) -> Mapping[str, Any]:
        """Return a finding for a number of things, such as heads, out of all of them."""
        finding = self.computed_finding(number / total if as_fraction else number)
        return {**finding, "count": vars(Count(number, total, unit))}

    @property
    def num_texts(self) -> int | None:
        """Number of texts; None if unknown."""
        return self.metadata.get("num_texts")

    def values_by_layer(self, metric: str) -> Array:
        """Return a metric's values by layer, (layers,); each layer must have a finding."""
        findings = (f for f in self.findings if f["metric"] == metric and "layer" in f)
        return np.array([f["value"] for f in sorted(findings, key=lambda f: f["layer"])])

    def values_by_head(self, metric: str) -> Array:
        """Return a metric's values by head, (layers, heads), nan if a finding is missing."""
        findings = [f for f in self.findings if f["metric"] == metric and "head" in f]
        shape = (1 + max(f["layer"] for f in findings), 1 + max(f["head"] for f in findings))
        values = np.full(shape, np.nan)
        for finding in findings:
            values[finding["layer"], finding["head"]] = finding["value"]
        return values


def write_result(
    folder: Path, name: str, metadata: Mapping[str, Any], result: AnalysisResult
) -> None:
    """Write ``NAME.npz`` with arrays and ``NAME.jsonl`` with metadata and one finding per line.

    The first line also holds the number of findings and a digest of the arrays, to detect
    truncated and missing files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {key: np.asarray(array) for key, array in result.arrays.items()}
    np.savez_compressed(buffer, **arrays)
    with atomic_file(folder / f"{name}.npz") as temporary:
        temporary.write_bytes(buffer.getvalue())
    check = {"num_findings": len(result.findings), "arrays_digest": _digest(buffer.getvalue())}
    lines = [{**metadata, **check}, *(finding.as_dict() for finding in result.findings)]
    content = "".join(json.dumps(null_non_finite(line), allow_nan=False) + "\n" for line in lines)
    write_text(folder / f"{name}.jsonl", content)


def has_result(folder: Path, name: str) -> bool:
    """Return True if the folder holds a result of that name."""
    return (folder / f"{name}.jsonl").is_file()


def read_result(folder: Path, name: str) -> StoredResult:
    """Read a result.

    Errors: UserError if it does not exist or is incomplete.
    """
    file = folder / f"{name}.jsonl"
    if not has_result(folder, name):
        raise UserError(f"{folder} has no result of the analysis {name}: run analyse first")
    try:
        lines = [loads_json(line) for line in file.read_text(encoding="utf-8").splitlines()]
        metadata, findings = dict[str, Any](lines[0]), [_restore_nan(line) for line in lines[1:]]
        content = (folder / f"{name}.npz").read_bytes()
        check = (metadata.pop("num_findings"), metadata.pop("arrays_digest"))
        if check != (len(findings), _digest(content)):
            raise ValueError("the files do not belong together")
        with np.load(io.BytesIO(content)) as arrays:
            return StoredResult(metadata, findings, dict(arrays))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged or of another version: run analyse again") from error


def null_non_finite(value: Any) -> Any:
    """Replace non-finite numbers by None, recursively, since JSON cannot represent them."""
    if isinstance(value, Mapping):
        mapping: Mapping[Any, Any] = value
        return {name: null_non_finite(item) for name, item in mapping.items()}
    if isinstance(value, list | tuple):
        items: Sequence[Any] = value
        return [null_non_finite(item) for item in items]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _restore_nan(line: dict[str, Any]) -> dict[str, Any]:
    """Restore nan from null; only a value and a baseline's value can be null."""
    for holder in (line, line.get("baseline", {})):
        if "value" in holder and holder["value"] is None:
            holder["value"] = math.nan
    return line


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
