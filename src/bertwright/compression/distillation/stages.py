"""Stages of distillation in pre-training, and the schedule of blocks within a stage."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Literal

from pydantic import Field, field_validator

from bertwright.compression.distillation.losses import DistillationTermConfig
from bertwright.compression.distillation.losses.layers import interval_index
from bertwright.core.config import Settings
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule, Schedule
from bertwright.training.clock import Progress


class BlockSchedule(Settings):
    """A schedule that trains the blocks of the student one after the other.

    Every block has an equal interval of the stage. The learning rate of the current block is scaled
    by ``learning_rate_scale``, a schedule over its interval; the learning rate of finished blocks
    is scaled by ``finished_scale`` in addition. All other parameters are frozen.
    """

    learning_rate_scale: NumberOrSchedule
    finished_scale: float = Field(default=0.1, ge=0.0)

    @field_validator("learning_rate_scale")
    @classmethod
    def _check_scale(cls, learning_rate_scale: Schedule) -> Schedule:
        if learning_rate_scale.value_range()[0] < 0.0:
            raise ValueError("scales a learning rate: it must not be below 0")
        return learning_rate_scale

    def learning_rate_scales(
        self, num_blocks: int, fraction: float, midpoint: float
    ) -> list[float]:
        """Return the learning rate scales before the blocks, of each block, and after the blocks.

        ``fraction`` and ``midpoint`` are fractions of the stage: at the start and the middle of a
        step.
        """
        index = interval_index(fraction, num_blocks)
        scale = self.learning_rate_scale.at(min(max(midpoint * num_blocks - index, 0.0), 1.0))
        finished = [self.finished_scale * scale] * index
        return [0.0, *finished, scale, *[0.0] * (num_blocks - index - 1), 0.0]


class DistillationStage(Settings):
    """A stage of the training.

    Attributes:
        fraction: its length relative to the other stages.
        losses: the distillation losses.
        positions: where outputs are compared: at masked tokens or at all real tokens.
        objective_weight: multiplies the losses of the student's recipe.
        block_schedule: trains the blocks one after the other; None trains all at once.
    """

    fraction: float = Field(default=1.0, gt=0.0)
    losses: tuple[DistillationTermConfig, ...] = Field(min_length=1)
    positions: Literal["masked", "all"] = "masked"
    objective_weight: NumberOrSchedule = ConstantSchedule(value=1.0)
    block_schedule: BlockSchedule | None = None


def stage_at(stages: Sequence[DistillationStage], progress: Progress) -> tuple[int, Progress]:
    """Return the index of the current stage and the progress within it."""
    total = sum(stage.fraction for stage in stages)
    ends = [end / total for end in accumulate(stage.fraction for stage in stages)]
    # The tolerance of the clock absorbs rounding in the sum at a boundary.
    index = min(bisect_right(ends, progress.fraction + 1e-9), len(ends) - 1)
    start = ends[index - 1] if index else 0.0
    fraction, midpoint = (
        min(max((value - start) / (ends[index] - start), 0.0), 1.0)
        for value in (progress.fraction, progress.midpoint)
    )
    return index, replace(progress, fraction=fraction, midpoint=midpoint)
