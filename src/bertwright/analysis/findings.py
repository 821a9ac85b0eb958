"""What an analysis found: numbers that say how sure they are, and arrays; and their files.

Pictures are drawn from these files alone, so that each can be drawn again and compared.
"""

import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.files import atomic_file, json_value, write_text
from bertwright.significance import Interval

Array = NDArray[Any]


@dataclass(frozen=True)
class Baseline:
    """What a number is to be held against: by name, and how much it is."""

    name: str
    value: float


@dataclass(frozen=True)
class Finding:
    """One number.

    Attributes:
        layer, head: counted from 0, None where it is of all.
        of_states: whether layer 0 is what stands before the blocks, and not the first of them.
        interval: 95 %, over ``num_units`` texts; None where nothing was drawn.
        chance: how often nothing at all gives as much; ``adjusted`` for a ``family`` of so many
            numbers.
        lead: the interval of how far it is ahead of its baseline.
        note: what else there is to say.
    """

    metric: str
    value: float
    layer: int | None = None
    head: int | None = None
    interval: tuple[float, float] | None = None
    num_units: int | None = None
    baseline: Baseline | None = None
    chance: float | None = None
    adjusted: float | None = None
    family: int | None = None
    lead: tuple[float, float] | None = None
    note: str | None = None
    of_states: bool = False

    @staticmethod
    def over_texts(
        metric: str,
        found: Interval,
        layer: int | None = None,
        head: int | None = None,
        baseline: Baseline | None = None,
        of_states: bool = False,
    ) -> "Finding":
        """A figure over texts."""
        own = (metric, found.value, layer, head, span_of(found), found.num_units, baseline)
        return Finding(*own, of_states=of_states)

    def as_dict(self) -> dict[str, Any]:
        """Plain data; layers and heads as people count them, too."""
        told = {name: value for name, value in vars(self).items() if value is not None}
        del told["of_states"]
        if self.baseline is not None:
            told["baseline"] = dict(vars(self.baseline))
        if self.layer is not None:
            told["layer_from_1"] = self.layer + (0 if self.of_states else 1)
        if self.head is not None:
            told["head_from_1"] = self.head + 1
        return told


def span_of(found: Interval) -> tuple[float, float] | None:
    """The interval of a figure; None where there is none."""
    return None if np.isnan(found.low) else (found.low, found.high)


@dataclass(frozen=True)
class Found:
    """Everything that one analysis found."""

    findings: Sequence[Finding]
    arrays: Mapping[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True)
class Stored:
    """The same, read from its files: ``about`` says of which model, texts and settings."""

    about: Mapping[str, Any]
    findings: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, Array]

    def of_all(self, metric: str) -> Mapping[str, Any]:
        """The finding of that metric over all layers and heads."""
        return next(e for e in self.findings if e["metric"] == metric and "layer" not in e)

    @property
    def num_texts(self) -> int | None:
        """That were read; None where it is not told."""
        return self.about.get("texts")

    def grid(self, metric: str) -> Array:
        """The values of a metric, (layers, heads), nan where there is none."""
        of = [each for each in self.findings if each["metric"] == metric and "head" in each]
        shape = (1 + max(e["layer"] for e in of), 1 + max(e["head"] for e in of))
        found = np.full(shape, np.nan)
        for each in of:
            found[each["layer"], each["head"]] = each["value"]
        return found


def write_found(folder: Path, name: str, about: Mapping[str, Any], found: Found) -> None:
    """``NAME.npz`` and ``NAME.jsonl``, the latter with a line about it all, then one a number. The
    first line also says of what files it is, so that what is cut or missing is noticed."""
    folder.mkdir(parents=True, exist_ok=True)
    held = io.BytesIO()
    arrays: dict[str, Any] = {key: np.asarray(own) for key, own in found.arrays.items()}
    np.savez_compressed(held, **arrays)
    with atomic_file(folder / f"{name}.npz") as temporary:
        temporary.write_bytes(held.getvalue())
    of = {"findings": len(found.findings), "arrays_digest": _digest(held.getvalue())}
    lines = [{**about, **of}, *(finding.as_dict() for finding in found.findings)]
    told = "".join(json.dumps(plain(line), allow_nan=False) + "\n" for line in lines)
    write_text(folder / f"{name}.jsonl", told)


def holds_found(folder: Path, name: str) -> bool:
    """Whether there is something of that name."""
    return (folder / f"{name}.jsonl").is_file()


def read_found(folder: Path, name: str) -> Stored:
    """Errors: UserError where there is nothing of that name, and where it is not whole."""
    file = folder / f"{name}.jsonl"
    if not holds_found(folder, name):
        raise UserError(f"{folder} has nothing of the analysis {name}: run analyse first")
    try:
        lines = [json_value(line) for line in file.read_text(encoding="utf-8").splitlines()]
        about, findings = dict[str, Any](lines[0]), [_read(line) for line in lines[1:]]
        written = (folder / f"{name}.npz").read_bytes()
        if (about.pop("findings"), about.pop("arrays_digest")) != (len(findings), _digest(written)):
            raise ValueError("not what was written")
        with np.load(io.BytesIO(written)) as held:
            return Stored(about, findings, dict(held))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is damaged or of another version: run analyse again") from error


def plain(value: Any) -> Any:
    """The same as JSON can say it: null where a number is none, or without end."""
    if isinstance(value, Mapping):
        held: Mapping[Any, Any] = value
        return {name: plain(own) for name, own in held.items()}
    if isinstance(value, list | tuple):
        several: Sequence[Any] = value
        return [plain(own) for own in several]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(line: dict[str, Any]) -> dict[str, Any]:
    """A finding as it was; only its value and its baseline can be null."""
    for told in (line, line.get("baseline", {})):
        if "value" in told and told["value"] is None:
            told["value"] = math.nan
    return line


def _digest(written: bytes) -> str:
    return hashlib.sha256(written).hexdigest()[:16]
