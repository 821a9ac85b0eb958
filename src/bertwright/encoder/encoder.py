"""The encoder: embeddings, blocks, a last norm."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.axes import Settings
from bertwright.encoder.block import SUBLAYERS, Block, numbered
from bertwright.encoder.bottleneck import Bottleneck, BottleneckBlock
from bertwright.encoder.cache import Cache
from bertwright.encoder.depth import Depth, Stack
from bertwright.encoder.embeddings import EmbeddingChoice, Embeddings, Pieces
from bertwright.encoder.feed_forward import FeedForward, Gelu
from bertwright.encoder.initialisation import Initialisation, Published
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.locality import Local
from bertwright.encoder.memory import Memory
from bertwright.encoder.mixers import AttentionChoice, Mixer
from bertwright.encoder.norms import LayerNormChoice, Norm
from bertwright.encoder.passage import Notes
from bertwright.encoder.positions import (
    EveryBlock,
    Learned,
    LogBuckets,
    Positions,
    Rotary,
    Rotation,
    Sinusoidal,
)
from bertwright.encoder.residual import Plain, Residual
from bertwright.encoder.stream import Coordinates, Source
from bertwright.encoder.surroundings import Across, Surroundings
from bertwright.encoder.taps import Site, Taps
from bertwright.encoder.visibility import Bidirectional, Causal, Visibility, Window, view
from bertwright.machine import tune_compiler


class EncoderChoice(Settings):
    """The axes of an encoder; the defaults are those of BERT."""

    width: int = 768
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
    dropout: float = 0.0
    initialisation: Initialisation = Published()
    memory: int = Field(default=0, ge=0)
    """How many places before a row are remembered from the step before."""

    def build(self, vocabulary_size: int) -> "Encoder":
        """An encoder with parameters yet to be initialised."""
        return Encoder(self, vocabulary_size)

    @model_validator(mode="after")
    def _a_rule_that_the_mixer_keeps(self) -> Self:
        if not self.mixer.any_rule and (
            self.local is not None or not isinstance(self.visibility, Bidirectional | Causal)
        ):
            raise ValueError(
                "mixer sees everything, or everything before: set visibility to bidirectional or "
                "causal and local to null, or choose mixer.kind attention"
            )
        return self

    @model_validator(mode="after")
    def _what_can_be_remembered(self) -> Self:
        if not self.memory:
            return self
        if isinstance(self.positions, Learned | Sinusoidal | EveryBlock):
            raise ValueError(
                "memory needs positions by distance, or what is remembered would have those of the "
                "row itself: set positions.kind to transformer-xl, rotary, alibi or bucketed"
            )
        if not self.mixer.remembers or any("s" in order[1:] for order in self.depth.orders()):
            raise ValueError(
                "memory needs blocks that begin with attention: set mixer and depth so"
            )
        return self

    @model_validator(mode="after")
    def _what_stands_in_a_bottleneck(self) -> Self:
        if self.bottleneck is None:
            return self
        plain = isinstance(self.mixer, AttentionChoice) and self.mixer.gate is None
        if not plain or any(order.count("s") != 1 for order in self.depth.orders()):
            raise ValueError(
                "bottleneck needs plain attention in every block: set mixer.kind to attention, "
                "mixer.gate to null and depth.kind to stack"
            )
        if self.norm.first or self.residual.looks_back or self.memory:
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
    def _local_angles(self) -> Self:
        if self.local and self.local.base is not None and not isinstance(self.positions, Rotary):
            raise ValueError("local.base needs rotary positions: leave it out")
        return self

    @property
    def local_positions(self) -> Positions:
        """The positions of the blocks that see a window only."""
        if self.local is None or self.local.base is None:
            return self.positions
        return self.positions.model_copy(update={"base": self.local.base})

    @property
    def drops(self) -> bool:
        """Whether anything is dropped while training."""
        return self.dropout > 0.0 or self.mixer.drops or self.depth.drop > 0.0

    @property
    def inner_width(self) -> int:
        """The width of the sublayers."""
        return self.width if self.bottleneck is None else self.bottleneck.width

    @property
    def table_width(self) -> int:
        """The width of the table of pieces."""
        return self.embeddings.table_width(self.width)


class Encoder(nn.Module):
    """Pieces and coordinates to states.

    ``taps`` is the one mechanism by which values inside are read and replaced; ``running`` is how
    many of the blocks are passed through.
    """

    def __init__(self, choice: EncoderChoice, vocabulary_size: int) -> None:
        super().__init__()
        self.rule = choice.visibility
        self.taps, self.prefix = Taps(), ""
        shape = choice.mixer.shape(choice.inner_width)
        positions = choice.positions.build(choice.embeddings.sum_width(choice.width), shape)
        self.local = choice.local
        self.local_rotation = choice.local_positions.build(1, shape).rotation
        self.embeddings = Embeddings(
            choice.embeddings, choice.norm, positions, choice.width, vocabulary_size, choice.dropout
        )
        self.blocks = nn.ModuleList(_blocks(choice))
        self.passage = choice.depth.passage(choice.width)
        self.running = len(self.blocks)
        self.looks_back = choice.residual.looks_back
        self.norm = choice.norm.build(choice.width) if choice.norm.first else nn.Identity()

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates | None = None,
        rule: Visibility | None = None,
        noise: Noise | None = None,
        stop_after: int | None = None,
        memory: Memory | Cache | None = None,
        notes: Notes | None = None,
        source: Source | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to states (B, L, D).

        ``rule`` takes the place of the encoder's own visibility; ``stop_after`` ends after that
        block, without the last norm. ``memory`` is seen as what stands before the rows, and notes
        what will stand before the next; a ``Cache`` is one for rows that are read in parts.
        ``notes`` is written to by a depth that has something to say of its pass. ``source`` is what
        the blocks of a decoder read from.
        """
        coordinates = coordinates or Coordinates.plain(pieces)
        site = None if self.taps.idle else Site(self.taps, self.prefix)
        x = self.embeddings(pieces, coordinates, noise, site and site.within("embeddings"))
        rule = rule or self.rule
        keys = None if memory is None else memory.before(coordinates)
        whole = self._around(rule, coordinates, keys, self.embeddings.positions.rotation)
        near = whole
        if self.local is not None:
            window = rule & Window(size=self.local.window)
            near = self._around(window, coordinates, keys, self.local_rotation)
        if source is not None:
            seen = view(Bidirectional(), coordinates, source.coordinates)
            across = Across(source.states, seen)
            whole, near = replace(whole, across=across), replace(near, across=across)
        made = [x] if self.looks_back else None

        def apply(index: int, x: Tensor) -> Tensor:
            signal = self.embeddings.positions.before(index, coordinates)
            if signal is not None:
                x = x + signal.to(x.dtype)
            is_near = self.local is not None and self.local.holds(index)
            around = near if is_near else whole
            here = None if noise is None else noise.within(index)
            past = None if memory is None else memory.recall(index, x, coordinates)
            block = self.blocks[index]
            if site is None:
                return block(x, around, here, None, past, made)
            return block.forward(x, around, here, site.within(f"blocks.{index}"), past, made)

        document = coordinates.document
        real = None if document is None else document >= 0
        last = self.running - 1 if stop_after is None else stop_after
        blocks = range(min(last + 1, self.running))
        x = self.passage(x, blocks, apply, noise, real, notes)
        if stop_after is not None and stop_after < self.running:
            return x
        x = self.norm(x)
        return x if site is None else site("output", x)

    def _around(
        self,
        rule: Visibility,
        coordinates: Coordinates,
        keys: Coordinates | None,
        rotation: Callable[[Coordinates], Rotation | None],
    ) -> Surroundings:
        return Surroundings(
            view(rule, coordinates, keys),
            rotation(coordinates),
            None if keys is None else rotation(keys),
            self.embeddings.positions.relation(coordinates, keys or coordinates),
        )

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile the block (one graph serves all of them) and the joining of embeddings.

        ``dynamic`` makes one graph for rows of any number and length.
        """
        tune_compiler()
        self.embeddings.join.compile(dynamic=dynamic)
        for block in blocks_of(self):
            block.compile_parts(dynamic)

    @property
    def longest(self) -> int | None:
        """The longest row that the positions allow; None where there is no limit."""
        return self.embeddings.positions.longest

    @contextmanager
    def record(self, *patterns: str, gradients: bool = False) -> Generator[dict[str, Tensor]]:
        """Collect the values with these names while the context is open."""
        with self.taps.record(*patterns, gradients=gradients) as values:
            yield values

    @contextmanager
    def replace(self, pattern: str, function: Callable[[Tensor], Tensor]) -> Generator[None]:
        """Put ``function(value)`` in the place of the values with this name."""
        with self.taps.replace(pattern, function):
            yield

    @contextmanager
    def gate(self, gates: dict[str, Tensor]) -> Generator[None]:
        """Multiply the values with these names, e.g. ``blocks.3.attention.context`` by (H, 1, 1).

        A gate of shape (B, H, 1, 1) acts per example; gradients with respect to a gate are the
        importances of what it gates.
        """
        with ExitStack() as stack:
            for name, gate in gates.items():
                stack.enter_context(self.replace(name, lambda value, gate=gate: value * gate))
            yield

    @contextmanager
    def forbid(self, block: int, edges: Tensor) -> Generator[None]:
        """Hide edges of one block: ``edges`` bool, broadcast to (B, H, L, L), True is hidden."""

        def hide(scores: Tensor) -> Tensor:
            return scores.masked_fill(edges, torch.finfo(scores.dtype).min)

        with self.replace(f"blocks.{block}.attention.scores", hide):
            yield


def _blocks(choice: EncoderChoice) -> list[Block]:
    blocks, number = list[Block](), 0
    for index, order in enumerate(choice.depth.orders()):
        sublayers: dict[str, nn.Module] = {}
        norms: dict[str, nn.Module] = {}
        weights: dict[str, nn.Module] = {}
        for place, letter in enumerate(order):
            name = numbered(SUBLAYERS[letter], order[: place + 1].count(letter))
            number += 1
            weighing = choice.residual.weights(number)
            if weighing is not None:
                weights[name] = weighing
            owner = choice.depth.owner(index, letter)
            if owner < index:
                sublayers[name] = blocks[owner].sublayers[name]
                norms[name] = blocks[owner].norms[name]
                continue
            skipped = index == 0 and not sublayers and choice.norm.skip_first
            sublayers[name] = _sublayer(choice, letter)
            norms[name] = nn.Identity() if skipped else choice.norm.build(choice.inner_width)
        block = Block(sublayers, norms, weights, choice.norm.first, choice.dropout)
        if choice.bottleneck is not None:
            block = BottleneckBlock(block, choice.bottleneck.ways(choice.width, choice.norm))
        blocks.append(block)
    return blocks


def _sublayer(choice: EncoderChoice, letter: str) -> nn.Module:
    width, norm = choice.inner_width, choice.norm
    if letter == "f":
        return choice.feed_forward.build(width, norm)
    if letter == "c":
        assert isinstance(choice.mixer, AttentionChoice), "a decoder choice takes no other mixer"
        return choice.mixer.across(width, norm)
    if choice.bottleneck is None:
        return choice.mixer.build(width, choice.positions, norm)
    assert isinstance(choice.mixer, AttentionChoice), "no other mixer stands in a bottleneck"
    projection = choice.bottleneck.projection(choice.width, choice.mixer.bias, norm)
    return choice.mixer.build(width, choice.positions, norm, projection)


def blocks_of(encoder: Encoder) -> list[Block]:
    """The blocks with their type."""
    return [cast(Block, block) for block in encoder.blocks]
