"""What is heard of a teacher in pre-training, part by part of the run."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

from pydantic import Field

from bertwright.axes import Settings
from bertwright.compression.lessons.block_turns import BlockTurns
from bertwright.compression.signals import Signal
from bertwright.schedules import Constant, Value
from bertwright.training.clock import Place


class LessonStage(Settings):
    """A part of the run.

    Attributes:
        share: of the run, beside those of the other stages.
        signals: what is heard of the teacher.
        places: where outputs are compared: where pieces are hidden, or in all that are real.
        own: multiplies the weights of what the recipe of the student asks.
        turns: how its blocks are trained one after the other, None where all are at once.
    """

    share: float = Field(default=1.0, gt=0.0)
    signals: tuple[Signal, ...] = Field(min_length=1)
    places: Literal["hidden", "all"] = "hidden"
    own: Value = Constant(value=1.0)
    turns: BlockTurns | None = None


def within(stages: Sequence[LessonStage], place: Place) -> tuple[int, Place]:
    """The number of the stage that a place of the run is in, and the place in that alone."""
    whole = sum(stage.share for stage in stages)
    ends = [end / whole for end in accumulate(stage.share for stage in stages)]
    # The tolerance is that of the clock: it keeps a boundary on its side of a rounded sum.
    number = min(bisect_right(ends, place.progress + 1e-9), len(ends) - 1)
    start = ends[number - 1] if number else 0.0
    progress, middle = (
        min(max((each - start) / (ends[number] - start), 0.0), 1.0)
        for each in (place.progress, place.middle)
    )
    return number, replace(place, progress=progress, middle=middle)
