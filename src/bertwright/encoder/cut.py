"""What is left of blocks from which heads and units were taken."""

from typing import Annotated

from pydantic import Field, field_validator

from bertwright.axes import Settings
from bertwright.encoder.feed_forward import FeedForward
from bertwright.encoder.mixers import AttentionChoice, Mixer

Sizes = tuple[Annotated[int, Field(ge=0, le=1 << 20)], ...]


class Cut(Settings):
    """How many ``heads`` the attention of every block has left, and how many ``units`` its
    feed-forward is wide within; None where nothing was taken. At least one of each is left."""

    heads: Sizes | None = Field(default=None, min_length=1)
    units: Sizes | None = Field(default=None, min_length=1)

    @field_validator("heads", "units")
    @classmethod
    def _one_is_left(cls, sizes: Sizes | None) -> Sizes | None:
        if sizes is not None and min(sizes) < 1:
            raise ValueError(f"leaves nothing of block {sizes.index(min(sizes))}: leave 1 or more")
        return sizes

    def mixer(self, whole: Mixer, width: int, block: int) -> Mixer:
        """What is left of a mixer in a block that writes so wide."""
        if self.heads is None:
            return whole
        assert isinstance(whole, AttentionChoice), "an encoder choice cuts no other mixer"
        heads = self.heads[block]
        left = {"heads": heads, "width": heads * whole.shape(width).head_width}
        return whole.model_copy(update=left)

    def feed_forward(self, whole: FeedForward, block: int) -> FeedForward:
        """What is left of a feed-forward."""
        if self.units is None:
            return whole
        return whole.model_copy(update={"width": self.units[block]})
