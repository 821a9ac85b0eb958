"""What an encoder is: a choice on each of its axes, and what follows from them."""

from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from bertwright.axes import Settings
from bertwright.encoder.adaptive import Adaptive
from bertwright.encoder.block import SUBLAYERS, added
from bertwright.encoder.bottleneck import Bottleneck
from bertwright.encoder.characters import Characters
from bertwright.encoder.cut import Cut
from bertwright.encoder.depth import Depth, Stack
from bertwright.encoder.dropout import Dropout, drops
from bertwright.encoder.embeddings import EmbeddingChoice, Factorised, Pieces, Trigrams
from bertwright.encoder.feed_forward import FeedForward, Gelu
from bertwright.encoder.initialisation import Initialisation, Published
from bertwright.encoder.locality import Local
from bertwright.encoder.mixers import AttentionChoice, Mixer
from bertwright.encoder.norms import LayerNormChoice, Norm
from bertwright.encoder.positions import (
    Axial,
    EveryBlock,
    Learned,
    LogBuckets,
    NoPositions,
    Positions,
    Rotary,
    Sinusoidal,
    TransformerXl,
)
from bertwright.encoder.residual import Plain, Residual
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    Visibility,
    by_head,
    is_by_halves,
    ways,
)

EMBEDDINGS = (Pieces, Factorised, Trigrams, Adaptive, Characters)
"""The kinds of that axis, which stand in several files."""


class EncoderChoice(Settings):
    """The axes of an encoder; the defaults are those of BERT."""

    width: int = Field(default=768, ge=1, le=65_536)
    depth: Depth = Stack()
    embeddings: EmbeddingChoice = Pieces()
    positions: Positions = Learned()
    visibility: Visibility = Bidirectional()
    local: Local | None = None
    mixer: Mixer = AttentionChoice()
    feed_forward: FeedForward = Gelu()
    norm: Norm = LayerNormChoice()
    residual: Residual = Plain()
    bottleneck: Bottleneck | None = None
    dropout: Dropout = 0.0
    initialisation: Initialisation = Published()
    cut: Cut | None = None
    memory: int = Field(default=0, ge=0, le=1 << 20)
    """How many places before a row are remembered from the step before; 1 where a recurrent mixer
    goes on from what it has come to."""

    @property
    def local_positions(self) -> Positions:
        """The positions of the blocks that see a window only."""
        if self.local is None or self.local.base is None:
            return self.positions
        return self.positions.model_copy(update={"base": self.local.base})

    @property
    def drops(self) -> bool:
        """Whether any numbers are dropped while training."""
        return drops(self.dropout) or self.mixer.drops or self.embeddings.row_dropout > 0.0

    @property
    def draws(self) -> bool:
        """Whether chance decides anything else while training, or training is told from use."""
        return self.mixer.draws or self.depth.drop > 0.0 or self.depth.every > 1

    @property
    def has_segments(self) -> bool:
        """Whether the texts of a pair differ in what is added to them, or in how attention is told
        where they stand."""
        return self.embeddings.segments > 1 or self.positions.tells_segments

    @property
    def tells_segments(self) -> bool:
        """Whether the texts of a pair are told apart: so, or by who sees whom."""
        return self.has_segments or self.visibility.tells_segments

    @property
    def num_parts(self) -> int:
        """Into how many parts a state falls: two where its halves read different ways."""
        return 2 if is_by_halves(self.visibility) else 1

    @property
    def part_width(self) -> int:
        """The width of what answers are read from: of a part of a state."""
        return self.width // self.num_parts

    @property
    def table_width(self) -> int:
        """The width of the table of pieces."""
        return self.embeddings.table_width(self.part_width)

    @property
    def widths(self) -> list[int]:
        """How wide the states are before, between and after the blocks."""
        entry = self.embeddings.sum_width(self.part_width) * self.num_parts
        return self.mixer.widths(entry, self.width, len(self.depth.orders()))

    @property
    def entry_width(self) -> int:
        """How wide the embeddings are, which every part of a state begins with."""
        return self.widths[0] // self.num_parts

    @property
    def inner_widths(self) -> list[tuple[int, int]]:
        """How wide what the sublayers of every block read is, and what they write."""
        if self.bottleneck is not None:
            return [(self.bottleneck.width, self.bottleneck.width)] * len(self.depth.orders())
        return list(pairwise(self.widths))

    @property
    def inner_width(self) -> int:
        """The width of what the last block writes within; of no block, that of the states."""
        return self.inner_widths[-1][1] if self.inner_widths else self.width

    def mixer_at(self, block: int) -> Mixer:
        """What mixes places in a block."""
        if self.cut is None:
            return self.mixer
        return self.cut.mixer(self.mixer, self.inner_widths[block][1], block)

    def feed_forward_at(self, block: int) -> FeedForward:
        """The feed-forward of a block."""
        if self.cut is None:
            return self.feed_forward
        return self.cut.feed_forward(self.feed_forward, block)

    @property
    def reach(self) -> int | None:
        """How far back every place sees at least, whatever the row; None where there is no end."""
        return None if self.mixer.recurrent else self.memory or None

    @property
    def caches(self) -> bool:
        """Whether a row can be read in parts: every block has keys and values of every place, and
        they stay what they are when others come behind them."""
        return self.mixer.caches and self.depth.runs_all

    @model_validator(mode="after")
    def _a_rule_that_the_mixer_keeps(self) -> Self:
        if self.mixer.recurrent:
            return self._a_way_to_read()
        if is_by_halves(self.visibility):
            raise ValueError(
                "visibility both-ways needs a mixer that keeps two halves apart: choose mixer.kind "
                "lstm, or another rule"
            )
        if not self.mixer.any_rule and (
            self.local is not None or not isinstance(self.visibility, Bidirectional | Causal)
        ):
            raise ValueError(
                "mixer sees everything, or everything before: set visibility to bidirectional or "
                "causal and local to null, or choose mixer.kind attention"
            )
        return self

    def _a_way_to_read(self) -> Self:
        read = ways(self.visibility)
        if not read or self.local is not None:
            raise ValueError(
                "mixer reads place by place: set visibility to causal, reversed or both-ways, with "
                "document or without, and local to null"
            )
        if not isinstance(self.positions, NoPositions | Learned | Sinusoidal):
            raise ValueError("mixer reads place by place, not by distance: set positions to none")
        if odd := [width for width in self.widths if width % len(read)]:
            raise ValueError(f"visibility both-ways needs even widths, not {odd[0]}")
        if any("s" not in order for order in self.depth.orders()):
            raise ValueError("mixer must stand in every block: set depth.kind to stack")
        if self.depth.sharing != "none":
            raise ValueError("mixer is not shared by blocks: set depth.sharing to none")
        if self.norm.placement == "sub":
            raise ValueError("mixer has no norm within: set norm.placement to pre or post")
        if self.memory and (self.memory != 1 or read != ("forward",)):
            raise ValueError(
                "memory of a recurrent mixer is what it has come to reading forward: set it to 1 "
                "and visibility to causal, or memory to 0"
            )
        return self

    @model_validator(mode="after")
    def _heads_and_distances(self) -> Self:
        for _, writes in self.inner_widths:
            shape = self.mixer.shape(writes)
            if isinstance(self.positions, Rotary) and shape.head_width % 2:
                raise ValueError(
                    f"positions rotate pairs, and a width of {writes} in {shape.heads} heads gives "
                    f"heads {shape.head_width} wide: choose an even width of a head"
                )
        waves = isinstance(self.positions, Sinusoidal | EveryBlock | TransformerXl)
        summed = self.embeddings.sum_width(self.entry_width)
        if waves and (odd := [width for width in (summed, *self.widths) if width % 2]):
            raise ValueError(
                f"positions have a sine and a cosine each, and a width of {odd[0]} is odd"
            )
        if narrow := [
            writes for _, writes in self.inner_widths if not self.feed_forward.inner(writes)
        ]:
            raise ValueError(
                f"feed_forward has no inner width in states {narrow[0]} wide: state its width"
            )
        if not self.mixer.takes(self.positions):
            raise ValueError(
                "positions tell of distances, which this mixer has no scores for: set "
                "positions.kind to learned, sinusoidal, rotary or none, or mixer.kind to attention "
                "that is scaled and has no global_projections"
            )
        return self

    @model_validator(mode="after")
    def _residuals_between_equals(self) -> Self:
        for block, (reads, writes) in enumerate(pairwise(self.widths)):
            if reads != writes and self.residual.join(block) is added:
                raise ValueError(
                    f"residual: block {block} reads {reads} wide and writes {writes} wide, which "
                    f"cannot be added: set residual.kind to none"
                )
        return self

    @model_validator(mode="after")
    def _what_can_be_remembered(self) -> Self:
        if not self.memory:
            return self
        if isinstance(self.positions, Axial | Learned | Sinusoidal | EveryBlock):
            raise ValueError(
                "memory needs positions by distance, or what is remembered would have those of the "
                "row itself: set positions.kind to transformer-xl, rotary, alibi or bucketed"
            )
        if not self.mixer.remembers or any("s" in order[1:] for order in self.depth.orders()):
            raise ValueError(
                "memory needs blocks that begin with attention: set mixer and depth so"
            )
        if self.mixer.asks_wide or self.visibility.by_extent:
            raise ValueError(
                "memory holds the end of a text whose start is gone: set mixer.global_projections "
                "to false, and a visibility that asks nothing of how long a text is"
            )
        return self

    @model_validator(mode="after")
    def _what_stands_in_a_bottleneck(self) -> Self:
        if self.bottleneck is None:
            return self
        mixer = self.mixer
        plain = (
            isinstance(mixer, AttentionChoice)
            and mixer.scaled
            and mixer.gate is None
            and mixer.width is None
        )
        whole = all(order.count("s") == 1 for order in self.depth.orders())
        if not plain or mixer.asks_wide or not whole:
            raise ValueError(
                "bottleneck needs plain attention in every block: set mixer.kind to attention, "
                "mixer.scaled to true, mixer.gate and mixer.width to null, "
                "mixer.global_projections to false and depth.kind to stack"
            )
        if self.norm.first or self.residual != Plain() or self.memory:
            raise ValueError(
                "bottleneck has its own states between the blocks: set norm.placement to post, "
                "residual.kind to plain and memory to 0"
            )
        if isinstance(self.positions, LogBuckets | EveryBlock):
            raise ValueError(
                "bottleneck has no vectors of distances, nor any before its blocks: choose another "
                "positions.kind"
            )
        return self

    @model_validator(mode="after")
    def _blocks_that_do_not_all_run(self) -> Self:
        depth = self.depth
        parted = depth.drop > 0.0 or depth.every > 1
        if (parted or not depth.runs_all) and (self.memory or self.residual.looks_back):
            raise ValueError(
                "memory and a weighted residual need every block to run: set memory to 0, "
                "residual.kind to plain, or depth without drop, every and halting"
            )
        if (parted or not depth.runs_all) and len(set(self.widths)) > 1:
            raise ValueError(
                "depth: blocks of different widths all run: leave out drop, every and halting"
            )
        if parted and not depth.runs_all:
            raise ValueError("depth: what halts by itself takes no drop and no every")
        learned = self.positions.learned if isinstance(self.positions, EveryBlock) else None
        if learned is not None and learned < len(depth.orders()):
            raise ValueError(
                f"positions.learned ({learned}) is less than the number of blocks "
                f"({len(depth.orders())})"
            )
        return self

    @model_validator(mode="after")
    def _what_can_be_reversed(self) -> Self:
        if not self.residual.is_reversible:
            return self
        depth, positions = self.depth, self.positions
        whole = all(order == "sf" for order in depth.orders()) and depth.runs_all
        if not self.norm.first or not whole or depth.drop > 0.0 or depth.every > 1:
            raise ValueError(
                "residual reversible needs norm.placement pre or sub, and blocks of attention and "
                "feed-forward that all run: set depth.kind to stack, without drop and every"
            )
        if self.memory or positions.by_distance or isinstance(positions, EveryBlock):
            raise ValueError(
                "residual reversible needs positions that are added to the embeddings or rotated, "
                "and memory 0"
            )
        return self

    @model_validator(mode="after")
    def _a_first_norm_of_its_own(self) -> Self:
        orders = self.depth.orders()
        followers = range(1, len(orders))
        shared = any(self.depth.owner(b, orders[0][0]) == 0 for b in followers)
        if self.norm.skips_first and shared:
            raise ValueError(
                "norm.skip_first leaves out the first norm, which other blocks share: set it to "
                "false, or depth.sharing to none"
            )
        return self

    @model_validator(mode="after")
    def _what_can_be_cut(self) -> Self:
        if self.cut is None:
            return self
        orders = self.depth.orders()
        for name, sizes, letter in (("heads", self.cut.heads, "s"), ("units", self.cut.units, "f")):
            if sizes is None:
                continue
            if len(sizes) != len(orders):
                raise ValueError(
                    f"cut.{name} are of {len(sizes)} blocks, and there are {len(orders)}"
                )
            if (most := max(order.count(letter) for order in orders)) != 1:
                raise ValueError(
                    f"cut.{name} are those of one {SUBLAYERS[letter]} in a block, and there are "
                    f"{most} in one: leave them out"
                )
            for block, order in enumerate(orders):
                owner = self.depth.owner(block, letter) if letter in order else block
                if sizes[owner] != sizes[block]:
                    raise ValueError(f"cut.{name}: blocks {owner} and {block} share theirs")
        if self.norm.placement == "sub":
            raise ValueError("cut: norms within sublayers are of whole ones: leave it out")
        if self.cut.heads is not None:
            self._heads_alike()
        return self

    def _heads_alike(self) -> None:
        """Refuse to take heads away where one is told from another by its number."""
        plain = isinstance(self.mixer, AttentionChoice) and not self.mixer.global_projections
        one_rule = len(by_head(self.visibility, self.mixer.shape(self.inner_width).heads)) == 1
        apart = self.positions.by_distance or self.bottleneck is not None or not one_rule
        if not plain or apart:
            raise ValueError(
                "cut.heads needs plain attention whose heads have nothing of their own: set "
                "mixer.kind to attention without global_projections, positions to none, learned, "
                "sinusoidal or rotary, visibility to one rule for all, and bottleneck to null"
            )

    @model_validator(mode="after")
    def _local_angles(self) -> Self:
        if self.local and self.local.base is not None and not isinstance(self.positions, Rotary):
            raise ValueError("local.base needs rotary positions: leave it out")
        return self
