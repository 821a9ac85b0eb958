"""One block after the other is trained: progressive knowledge transfer (Sun et al. 2020, section
3.5)."""

from pydantic import Field, field_validator

from bertwright.axes import Settings
from bertwright.compression.signals.by_layer import turn_of
from bertwright.schedules import Schedule, Value


class BlockTurns(Settings):
    """Every block has an equal part of the time. Within it its learning rate is multiplied with
    ``rate``, a schedule over that part, which is a saw-tooth over all of them; a block that has had
    its turn goes on at ``behind`` of what the one has whose turn it is. Nothing else moves: no
    block before its turn, and nothing around the blocks."""

    rate: Value
    behind: float = Field(default=0.1, ge=0.0)

    @field_validator("rate")
    @classmethod
    def _is_a_rate(cls, rate: Schedule) -> Schedule:
        if rate.extremes()[0] < 0.0:
            raise ValueError("multiplies a learning rate: it is not below 0")
        return rate

    def rates(self, blocks: int, progress: float, middle: float) -> list[float]:
        """What learning rates are multiplied with before so many blocks, in each, and behind them,
        in a step that begins at a progress and has its middle at another."""
        turn = turn_of(progress, blocks)
        now = self.rate.at(min(max(middle * blocks - turn, 0.0), 1.0))
        behind = [self.behind * now] * turn
        return [0.0, *behind, now, *[0.0] * (blocks - turn - 1), 0.0]
