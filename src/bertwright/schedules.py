"""Values that change over time: one type for rates, dropouts, lengths, batches and weights.

A schedule is a number, or ``{kind: linear, from: .3, to: .15}``; it is evaluated at the progress of
the phase it stands in, a number from 0 to 1.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bertwright.axes import Choice


class Schedule(Choice):
    """A value as a function of progress."""

    def at(self, progress: float) -> float:
        """The value at a progress in [0, 1]."""
        raise TypeError(f"{type(self).__name__} is an axis, not a schedule")


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

    ``decay`` is the shape after the rise: ``linear`` (BERT), ``cosine`` (GPT), ``constant``,
    ``inverse-root`` (one over the root of the time; Vaswani et al. 2017), or ``trapezoid``:
    constant, then linear down over the last ``cooldown`` of the time (also called
    warmup-stable-decay).
    """

    kind: Literal["warmup"] = "warmup"
    warmup: float = Field(default=0.1, ge=0.0, le=1.0)
    decay: Literal["linear", "cosine", "constant", "inverse-root", "trapezoid"] = "linear"
    cooldown: float = Field(default=0.3, gt=0.0, le=1.0)
    floor: float = Field(default=0.0, ge=0.0, le=1.0)

    def at(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup
        remaining = 1.0 - progress
        falling = {
            "constant": 1.0,
            "linear": remaining / max(1.0 - self.warmup, 1e-9),
            "cosine": 0.5
            * (1.0 + math.cos(math.pi * (progress - self.warmup) / max(1.0 - self.warmup, 1e-9))),
            "inverse-root": (max(self.warmup, 1e-9) / max(progress, 1e-9)) ** 0.5,
            "trapezoid": min(1.0, remaining / self.cooldown),
        }[self.decay]
        return self.floor + (1.0 - self.floor) * max(falling, 0.0)


def _from_number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Constant(value=float(value))
    return value


Value = Annotated[Schedule, BeforeValidator(_from_number)]
"""The type of a recipe field that takes a number or a schedule."""
