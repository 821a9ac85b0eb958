"""Schedules of learning rates, dropouts, sequence lengths, batch sizes and loss weights.

A recipe states a number or, for example, ``{kind: linear, from: .3, to: .15}``. A schedule is a
function of progress in the training phase, from 0 to 1.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from bertwright.core.config import Config, Settings


class StepValue(Config):
    """A value for every step of a run."""

    def over(self, start: float, stop: float) -> float:
        """Return the value for a step from one progress in [0, 1] to another."""
        raise TypeError(f"{type(self).__name__} is an axis, not a value")

    def value_range(self) -> tuple[float, float]:
        """Return the minimum and maximum over all progress."""
        raise TypeError(f"{type(self).__name__} is an axis, not a value")


class Schedule(StepValue):
    """A value as a function of progress."""

    def at(self, progress: float) -> float:
        """Return the value at a progress in [0, 1]."""
        raise TypeError(f"{type(self).__name__} is an axis, not a schedule")

    @property
    def turning_points(self) -> tuple[float, ...]:
        """Return the progress values between which the schedule is monotonic."""
        return (0.0, 1.0)

    def value_range(self) -> tuple[float, float]:
        values = [self.at(progress) for progress in self.turning_points]
        return min(values), max(values)

    def over(self, start: float, stop: float) -> float:
        """Return the value at the start of a step."""
        return self.at(start)


class ConstantSchedule(Schedule):
    """A constant value."""

    kind: Literal["constant"] = "constant"
    value: float = 1.0

    def at(self, progress: float) -> float:
        return self.value


class LinearSchedule(Schedule):
    """A straight line from one value to another."""

    kind: Literal["linear"] = "linear"
    start: float = Field(alias="from")
    end: float = Field(alias="to")

    def at(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


class CosineSchedule(Schedule):
    """A half cosine wave from one value to another."""

    kind: Literal["cosine"] = "cosine"
    start: float = Field(alias="from", default=1.0)
    end: float = Field(alias="to", default=0.0)

    def at(self, progress: float) -> float:
        return self.end + (self.start - self.end) * 0.5 * (1.0 + math.cos(math.pi * progress))


class WarmupSchedule(Schedule):
    """A linear warmup from 0 to 1, then a decay to ``floor``.

    ``warmup`` and ``cooldown`` are fractions of the phase. ``decay`` is ``linear`` (BERT),
    ``cubic`` (Longformer: polynomial of power 3), ``cosine`` (GPT), ``constant``, or ``trapezoid``
    (warmup-stable-decay): constant, then linear over the ``cooldown``, or what the warmup leaves.
    """

    kind: Literal["warmup"] = "warmup"
    warmup: float = Field(default=0.1, ge=0.0, le=1.0)
    decay: Literal["linear", "cubic", "cosine", "constant", "trapezoid"] = "linear"
    cooldown: float = Field(default=0.3, gt=0.0, le=1.0)
    floor: float = Field(default=0.0, ge=0.0, le=1.0)

    @property
    def turning_points(self) -> tuple[float, ...]:
        return (0.0, self.warmup, 1.0)

    def at(self, progress: float) -> float:
        if progress < self.warmup or self.warmup == 1.0:
            return progress / self.warmup
        remaining, decay_length = 1.0 - progress, 1.0 - self.warmup
        fraction = remaining / decay_length
        decayed = {
            "constant": 1.0,
            "linear": fraction,
            "cubic": fraction**3,
            "cosine": 0.5 * (1.0 + math.cos(math.pi * (progress - self.warmup) / decay_length)),
            "trapezoid": min(1.0, remaining / min(self.cooldown, decay_length)),
        }[self.decay]
        return self.floor + (1.0 - self.floor) * max(decayed, 0.0)


class SquareRootSchedule(Schedule):
    """A change from one value to another in proportion to the square root of progress.

    From 1 to 0 it is the 1-sqrt cooldown (Haegele et al. 2024, section 3).
    """

    kind: Literal["root"] = "root"
    start: float = Field(alias="from", default=1.0)
    end: float = Field(alias="to", default=0.0)

    def at(self, progress: float) -> float:
        return self.start + (self.end - self.start) * math.sqrt(progress)


class CubicSchedule(Schedule):
    """A change with the cube of the remaining progress, as for sparsity (Zhu and Gupta 2017)."""

    kind: Literal["cubic"] = "cubic"
    start: float = Field(alias="from", default=1.0)
    end: float = Field(alias="to", default=0.0)

    def at(self, progress: float) -> float:
        return self.end + (self.start - self.end) * (1.0 - progress) ** 3


class InverseSquareRootSchedule(Schedule):
    """A linear rise from 0 to 1 over ``warmup``, then sqrt(warmup / progress).

    This is the Transformer's schedule, scaled to 1 (Vaswani et al. 2017, section 5.3). Without
    ``rise`` it is 1 during the warmup (T5; Adafactor's relative step).
    """

    kind: Literal["inverse-root"] = "inverse-root"
    warmup: float = Field(default=0.04, gt=0.0, le=1.0)
    rise: bool = True

    @property
    def turning_points(self) -> tuple[float, ...]:
        return (0.0, self.warmup, 1.0)

    def at(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup if self.rise else 1.0
        return math.sqrt(self.warmup / progress)


class SlantedTriangularSchedule(Schedule):
    """A linear rise from 1 / ``ratio`` to 1 over ``warmup``, then a linear fall back.

    Source: Howard and Ruder 2018, section 3.2.
    """

    kind: Literal["slanted-triangle"] = "slanted-triangle"
    warmup: float = Field(default=0.1, gt=0.0, lt=1.0)
    ratio: float = Field(default=32.0, ge=1.0)

    @property
    def turning_points(self) -> tuple[float, ...]:
        return (0.0, self.warmup, 1.0)

    def at(self, progress: float) -> float:
        rising = progress < self.warmup
        height = progress / self.warmup if rising else (1.0 - progress) / (1.0 - self.warmup)
        return (1.0 + height * (self.ratio - 1.0)) / self.ratio


class ScheduleSegment(Settings):
    """A segment of a piecewise schedule: a ``value`` over a ``fraction`` of the phase."""

    fraction: float = Field(gt=0.0)
    value: "NumberOrSchedule"


class PiecewiseSchedule(Schedule):
    """A sequence of schedules, each over its fraction of the phase (scaled to a sum of 1)."""

    kind: Literal["parts"] = "parts"
    parts: tuple[ScheduleSegment, ...] = Field(min_length=1)

    def at(self, progress: float) -> float:
        remaining = progress * sum(part.fraction for part in self.parts)
        for part in self.parts[:-1]:
            if remaining < part.fraction:
                return part.value.at(remaining / part.fraction)
            remaining -= part.fraction
        last = self.parts[-1]
        return last.value.at(min(remaining / last.fraction, 1.0))

    def value_range(self) -> tuple[float, float]:
        ranges = [part.value.value_range() for part in self.parts]
        return min(low for low, _ in ranges), max(high for _, high in ranges)


def _constant_from_number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ConstantSchedule(value=float(value))
    return value


NumberOrSchedule = Annotated[Schedule, BeforeValidator(_constant_from_number)]
"""Type of a recipe field that accepts a number or a schedule."""


class MeanDecay(StepValue):
    """The decay that makes a moving average the mean over the last part of a run.

    Every value counts for the length of its step, so in a run with a number of steps all have the
    same weight (Polyak and Juditsky 1992; Vaswani et al. 2017, section 6.1). ``last`` is the part
    of the run, of its steps or its time. Before it the average is the current value.
    """

    kind: Literal["mean"] = "mean"
    last: float = Field(default=0.2, gt=0.0, le=1.0)

    def over(self, start: float, stop: float) -> float:
        first = 1.0 - self.last
        return (start - first) / (stop - first) if start > first else 0.0

    def value_range(self) -> tuple[float, float]:
        """Return the decay at the start of the run; it is below 1 in every step."""
        return 0.0, 0.0


AverageDecay = Annotated[StepValue, BeforeValidator(_constant_from_number)]
"""Type of the decay of a moving average: a number, a schedule, or ``{kind: mean}``."""

ScheduleSegment.model_rebuild()
