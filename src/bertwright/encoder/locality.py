"""Blocks that see a window around each place, among blocks that see whatever the rule allows."""

from pydantic import Field

from bertwright.axes import Settings
from bertwright.encoder.visibility import Visibility, Window


class Local(Settings):
    """All blocks but every ``every``-th, counted from the first, see ``window`` places to each side
    (Warner et al. 2024). ``base`` is that of their rotary angles; None leaves it as it is."""

    every: int = Field(default=3, ge=2, le=1_024)
    window: int = Field(default=64, ge=1, le=1 << 20)
    base: float | None = None

    def holds(self, block: int) -> bool:
        """Whether a block sees its window only."""
        return block % self.every != 0


def rule_at(block: int, rule: Visibility, local: Local | None) -> Visibility:
    """Who may see whom in one block."""
    own = rule.at_block(block)
    if local is None or not local.holds(block):
        return own
    return own & Window(size=local.window)
