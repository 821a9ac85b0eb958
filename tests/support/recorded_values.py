"""Values recorded in an earlier run, for tests that compare with them."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertwright.analysis.core.result import AnalysisResult, StoredResult

FOLDER = Path(__file__).parents[1] / "recorded" / "values"

Value = float | int | str | bool | None | list[float]


class RecordedValues:
    """Values by test, of one file; ``--record`` replaces those of the tests that run."""

    def __init__(self, name: str, records: bool) -> None:
        self._file = FOLDER / f"{name}.json"
        self._records = records
        text = self._file.read_text(encoding="utf-8") if self._file.is_file() else "{}"
        self._values: dict[str, dict[str, Value]] = json.loads(text)

    def compare(
        self,
        test: str,
        values: Mapping[str, Value],
        relative: float = 0.0,
        absolute: float = 0.0,
    ) -> None:
        """Assert that the numbers are near those recorded, and everything else is equal."""
        plain = json.loads(json.dumps(dict(values)))
        if self._records:
            self._values[test] = _rounded(plain)
            return
        assert test in self._values, "not recorded: run pytest tests/recorded --record"
        recorded = self._values[test]
        assert plain.keys() == recorded.keys()
        different = {
            name: (recorded[name], value)
            for name, value in plain.items()
            if not _is_near(value, recorded[name], relative, absolute)
        }
        assert not different, different

    def write(self) -> None:
        """Write the file, if values were recorded."""
        if self._records:
            lines = (
                f"{json.dumps(test)}: {json.dumps(values, sort_keys=True)}"
                for test, values in sorted(self._values.items())
            )
            self._file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


@contextmanager
def recorded_values(name: str, config: pytest.Config) -> Generator[RecordedValues]:
    """Yield the values of a file, and write it at the end with ``--record``."""
    values = RecordedValues(name, config.getoption("--record"))
    yield values
    values.write()


def finding_values(results: Iterable[StoredResult | AnalysisResult]) -> dict[str, Value]:
    """Return all numbers of results of analyses; of each array, its mean and a weighted mean."""
    values: dict[str, Value] = {}
    for number, result in enumerate(results):
        for index, finding in enumerate(result.findings):
            plain = dict(finding if isinstance(finding, Mapping) else finding.as_dict())
            values[f"{number}.{index}.{plain['metric']}"] = [*_numbers(plain)]
        for name, array in result.arrays.items():
            if array.size and array.dtype.kind in "biuf":
                flat = array.astype(np.float64).ravel()
                weights = np.cos(np.arange(flat.size))
                values[f"{number}.{name}"] = [float(flat.mean()), float((flat * weights).mean())]
    return values


def _numbers(plain: Mapping[str, Any]) -> Iterator[float]:
    """Yield the numbers of nested data, in the order of their names."""
    for _, value in sorted(plain.items()):
        if isinstance(value, Mapping):
            yield from _numbers(value)
        elif isinstance(value, tuple | list):
            yield from map(float, value)
        elif not isinstance(value, str):
            yield float(value)


def _rounded(value: Any) -> Any:
    """Round all numbers to seven digits."""
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [*map(_rounded, value)]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _is_near(value: Value, recorded: Value, relative: float, absolute: float) -> bool:
    if not isinstance(value, float | list) or not isinstance(recorded, float | list):
        return value == recorded
    pair = (np.asarray(numbers, np.float64) for numbers in (value, recorded))
    return bool(np.allclose(*pair, rtol=relative, atol=absolute, equal_nan=True))
