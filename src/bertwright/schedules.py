"""Values that change over time: one type for rates, dropouts, lengths, batches and weights.

A schedule is a number, or ``{kind: linear, from: .3, to: .15}``; it is evaluated at the progress of
the phase it stands in, a number from 0 to 1.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bertwright.axes import Choice, Settings


class Schedule(Choice):
    """A value as a function of progress."""

    def at(self, progress: float) -> float:
        """The value at a progress in [0, 1]."""
        raise TypeError(f"{type(self).__name__} is an axis, not a schedule")

    @property
    def corners(self) -> tuple[float, ...]:
        """Progress where the value may turn; it rises or falls all the way between two of them."""
        return (0.0, 1.0)

    def extremes(self) -> tuple[float, float]:
        """The least and the most that it is at any progress."""
        values = [self.at(progress) for progress in self.corners]
        return min(values), max(values)


class Constant(Schedule):
    """The same value throughout."""

    kind: Literal["constant"] = "constant"
    value: float = 1.0

    def at(self, progress: float) -> float:
        return self.value


class Linear(Schedule):
    """A straight line from one value to another."""

    kind: Literal["linear"] = "linear"
    start: float = Field(alias="from")
    end: float = Field(alias="to")

    def at(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


class Cosine(Schedule):
    """Half a cosine wave from one value to another."""

    kind: Literal["cosine"] = "cosine"
    start: float = Field(alias="from", default=1.0)
    end: float = Field(alias="to", default=0.0)

    def at(self, progress: float) -> float:
        return self.end + (self.start - self.end) * 0.5 * (1.0 + math.cos(math.pi * progress))


class Warmup(Schedule):
    """A rise from 0 to 1 over the first share of the time, then a decay to ``floor``.

    ``decay`` is the shape after the rise: ``linear`` (BERT), ``cosine`` (GPT), ``constant``, or
    ``trapezoid``: constant, then linear down over the last ``cooldown`` of the time (also called
    warmup-stable-decay).
    """

    kind: Literal["warmup"] = "warmup"
    warmup: float = Field(default=0.1, ge=0.0, le=1.0)
    decay: Literal["linear", "cosine", "constant", "trapezoid"] = "linear"
    cooldown: float = Field(default=0.3, gt=0.0, le=1.0)
    floor: float = Field(default=0.0, ge=0.0, le=1.0)

    @property
    def corners(self) -> tuple[float, ...]:
        return (0.0, self.warmup, 1.0)

    def extremes(self) -> tuple[float, float]:
        lowest, highest = super().extremes()
        # A decay that begins before the rise has ended leaves its end out.
        return lowest, 1.0 if self.warmup else highest

    def at(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup
        remaining = 1.0 - progress
        falling = {
            "constant": 1.0,
            "linear": remaining / max(1.0 - self.warmup, 1e-9),
            "cosine": 0.5
            * (1.0 + math.cos(math.pi * (progress - self.warmup) / max(1.0 - self.warmup, 1e-9))),
            "trapezoid": min(1.0, remaining / self.cooldown),
        }[self.decay]
        return self.floor + (1.0 - self.floor) * max(falling, 0.0)


class Root(Schedule):
    """From one value to another with the root of progress: fast at first, then ever slower.

    From 1 to 0 it is the 1-sqrt cooldown (Haegele et al. 2024, section 3).
    """

    kind: Literal["root"] = "root"
    start: float = Field(alias="from", default=1.0)
    end: float = Field(alias="to", default=0.0)

    def at(self, progress: float) -> float:
        return self.start + (self.end - self.start) * math.sqrt(progress)


class Cubic(Schedule):
    """From one value to another, fast at first and ever slower, with the third power of what is
    left: how many weights are pruned (Zhu and Gupta 2017)."""

    kind: Literal["cubic"] = "cubic"
    start: float = Field(alias="from", default=1.0)
    end: float = Field(alias="to", default=0.0)

    def at(self, progress: float) -> float:
        return self.end + (self.start - self.end) * (1.0 - progress) ** 3


class InverseRoot(Schedule):
    """A straight rise from 0 to 1 over the first share of the time, then sqrt(share / progress):
    the schedule of the Transformer, scaled to 1 (Vaswani et al. 2017, section 5.3).

    Without the ``rise`` it is 1 for that share (T5; Adafactor's relative step).
    """

    kind: Literal["inverse-root"] = "inverse-root"
    warmup: float = Field(default=0.04, gt=0.0, le=1.0)
    rise: bool = True

    @property
    def corners(self) -> tuple[float, ...]:
        return (0.0, self.warmup, 1.0)

    def at(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup if self.rise else 1.0
        return math.sqrt(self.warmup / progress)


class SlantedTriangle(Schedule):
    """A short straight rise to 1 and a long straight fall, both to and from 1 / ``ratio`` (Howard
    and Ruder 2018, section 3.2); ``cut`` is the share of the rise."""

    kind: Literal["slanted-triangle"] = "slanted-triangle"
    cut: float = Field(default=0.1, gt=0.0, lt=1.0)
    ratio: float = Field(default=32.0, ge=1.0)

    @property
    def corners(self) -> tuple[float, ...]:
        return (0.0, self.cut, 1.0)

    def at(self, progress: float) -> float:
        rising = progress < self.cut
        height = progress / self.cut if rising else (1.0 - progress) / (1.0 - self.cut)
        return (1.0 + height * (self.ratio - 1.0)) / self.ratio


class Part(Settings):
    """A stretch of a schedule in parts: ``value`` over its ``share``."""

    share: float = Field(gt=0.0)
    value: "Value"


class Parts(Schedule):
    """One schedule after the other, each over its share of the time; shares are scaled to a sum
    of 1."""

    kind: Literal["parts"] = "parts"
    parts: tuple[Part, ...] = Field(min_length=1)

    def at(self, progress: float) -> float:
        left = progress * sum(part.share for part in self.parts)
        for part in self.parts[:-1]:
            if left < part.share:
                return part.value.at(left / part.share)
            left -= part.share
        last = self.parts[-1]
        return last.value.at(min(left / last.share, 1.0))

    def extremes(self) -> tuple[float, float]:
        of_parts = [part.value.extremes() for part in self.parts]
        return min(low for low, _ in of_parts), max(high for _, high in of_parts)


def _from_number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Constant(value=float(value))
    return value


Value = Annotated[Schedule, BeforeValidator(_from_number)]
"""The type of a recipe field that takes a number or a schedule."""

Part.model_rebuild()
