"""Depth: the number of blocks, and the order of their sublayers."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from bertwright.core.config import Config
from bertwright.encoder.layer_stack import AdaptiveComputationTime, LayerStack

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig

MAX_BLOCKS = 1_024


class DepthConfig(Config):
    """The sublayers of every block, and the parameters that blocks share.

    Consecutive blocks form ``groups`` groups. The blocks of a group share ``sharing``, norms
    included: nothing, attention, feed-forward or ``all`` (Lan et al. 2020). Bottleneck projections
    are never shared. In training each block is dropped with probability ``drop``. In inference only
    every ``every``-th block runs, which layer dropout makes possible (Fan et al. 2020).
    """

    sharing: Literal["none", "all", "attention", "feed-forward"] = "none"
    groups: int = Field(default=1, ge=1, le=1_024)
    drop: float = Field(default=0.0, ge=0.0, lt=1.0)
    every: int = Field(default=1, ge=1, le=1_024)

    runs_every_block: ClassVar[bool] = True
    """True if every block runs for every token, apart from layer dropout."""

    @property
    def skips_blocks(self) -> bool:
        """Return whether some blocks are skipped, at random or regularly."""
        return self.drop > 0.0 or self.every > 1

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        may_skip = self.skips_blocks or not self.runs_every_block
        if may_skip and (encoder.memory_length or encoder.residual.needs_sublayer_outputs):
            yield (
                "memory_length and a weighted residual need every block to run: set memory_length "
                "to 0, residual.kind to plain, or depth without drop, every and halting"
            )
        if may_skip and len(set(encoder.hidden_widths)) > 1:
            yield (
                "depth: blocks of different widths must all run: leave out drop, every and halting"
            )
        if self.skips_blocks and not self.runs_every_block:
            yield "depth: halting cannot be combined with drop or every"

    def build_layer_stack(self, width: int) -> LayerStack:
        """Build the layer stack for hidden states of this width."""
        return LayerStack(self.drop, self.every)

    def flops(self, width: int) -> float:
        """Return the FLOPs per block and token in addition to the block itself."""
        return 0.0

    def owner_block(self, block: int, letter: str) -> int:
        """Return the block that owns the parameters of this block's sublayer."""
        shared = {"none": "", "all": "sfc", "attention": "s", "feed-forward": "f"}[self.sharing]
        return self.first_sharing_block(block, letter) if letter in shared else block

    def first_sharing_block(self, block: int, letter: str) -> int:
        """Return the first block that may share a sublayer with this block."""
        orders = self.sublayer_orders()
        group = block * self.groups // len(orders)
        first = -(-group * len(orders) // self.groups)
        return next(b for b in range(first, block + 1) if letter in orders[b])

    def sublayer_orders(self) -> list[str]:
        """Return one string of sublayer letters per block."""
        raise TypeError(f"{type(self).__name__} is an axis, not a depth")


def _check_letters(order: str) -> str:
    if not order or set(order) - {"s", "f"}:
        raise ValueError(f"{order!r} may hold only the letters s (attention), f (feed-forward)")
    return order


class RepeatedBlocksConfig(DepthConfig):
    """``layers`` identical blocks: attention, then feed-forward, or another ``order``."""

    layers: int = Field(default=12, ge=1, le=MAX_BLOCKS)
    order: str = "sf"

    @field_validator("order")
    @classmethod
    def _check_order(cls, order: str) -> str:
        if _check_letters(order).count("s") > 1:
            raise ValueError(f"{order!r} holds more than one s: a block has one attention at most")
        return order

    def sublayer_orders(self) -> list[str]:
        return [self.order] * self.layers


class StackConfig(RepeatedBlocksConfig):
    """A plain stack of layers."""

    kind: Literal["stack"] = "stack"


class HaltingStackConfig(RepeatedBlocksConfig):
    """At most ``layers`` blocks with shared parameters; each token halts independently.

    A token halts when its halting probabilities sum to 1 - ``epsilon`` (Dehghani et al. 2019,
    section 2.2).
    """

    kind: Literal["halting"] = "halting"
    sharing: Literal["none", "all", "attention", "feed-forward"] = "all"
    epsilon: float = Field(default=0.01, gt=0.0, lt=1.0)

    runs_every_block: ClassVar[bool] = False

    def build_layer_stack(self, width: int) -> LayerStack:
        return AdaptiveComputationTime(width, self.epsilon)

    def flops(self, width: int) -> float:
        return 2 * width


class LoopConfig(DepthConfig):
    """A stack whose middle blocks run several times in turn (Saunshi et al. 2025).

    After ``before`` blocks, ``looped`` blocks run one after the other, and this ``times`` times
    with the same parameters; then come ``after`` blocks (Geiping et al. 2025, without its random
    state and its number of passes that varies).
    """

    kind: Literal["loop"] = "loop"
    sharing: Literal["none", "all", "attention", "feed-forward"] = "all"
    before: int = Field(default=1, ge=0, le=1_024)
    looped: int = Field(default=2, ge=1, le=1_024)
    times: int = Field(default=2, ge=1, le=1_024)
    after: int = Field(default=1, ge=0, le=1_024)

    @model_validator(mode="after")
    def _check_loop(self) -> Self:
        if self.groups != 1:
            raise ValueError("groups are for consecutive blocks: leave it out of a loop")
        if len(self.sublayer_orders()) > MAX_BLOCKS:
            raise ValueError(f"before + looped x times + after must be {MAX_BLOCKS:,} or less")
        return self

    def first_sharing_block(self, block: int, letter: str) -> int:
        is_looped = 0 <= block - self.before < self.looped * self.times
        return self.before + (block - self.before) % self.looped if is_looped else block

    def sublayer_orders(self) -> list[str]:
        return ["sf"] * (self.before + self.looped * self.times + self.after)


class NoBlocksConfig(DepthConfig):
    """No blocks: the embeddings are the hidden states."""

    kind: Literal["none"] = "none"

    def sublayer_orders(self) -> list[str]:
        return []


class SandwichConfig(DepthConfig):
    """A stack with some attention sublayers moved to the front, and feed-forwards to the back.

    ``outside`` is the fraction of the ``layers`` that are moved (Press et al. 2020, section 4: 6 of
    16).
    """

    kind: Literal["sandwich"] = "sandwich"
    layers: int = Field(default=16, ge=1, le=MAX_BLOCKS)
    outside: float = Field(default=0.375, ge=0.0, le=1.0)

    def sublayer_orders(self) -> list[str]:
        moved = round(self.outside * self.layers)
        return list("s" * moved + "sf" * (self.layers - moved) + "f" * moved)


class SublayerOrderConfig(DepthConfig):
    """Any order of sublayers, one block each: ``ssfsff`` (Press et al. 2020)."""

    kind: Literal["sublayers"] = "sublayers"
    order: str

    @field_validator("order")
    @classmethod
    def _check_order(cls, order: str) -> str:
        return _check_letters(order)

    def sublayer_orders(self) -> list[str]:
        return list(self.order)
