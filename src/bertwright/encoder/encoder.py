"""The encoder: embeddings, blocks, a last norm."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.axes import Settings
from bertwright.encoder.block import SUBLAYERS, Block
from bertwright.encoder.depth import Depth, Stack
from bertwright.encoder.embeddings import EmbeddingChoice, Embeddings, Pieces
from bertwright.encoder.feed_forward import FeedForward, Gelu
from bertwright.encoder.initialisation import Initialisation, Published
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.locality import Local
from bertwright.encoder.memory import Memory
from bertwright.encoder.mixers import AttentionChoice, Mixer
from bertwright.encoder.norms import LayerNormChoice, Norm
from bertwright.encoder.positions import Axial, Learned, Positions, Rotary, Sinusoidal
from bertwright.encoder.residual import OneStream, Residual, Step, run_reversible, run_stored
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, Taps
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    Tiling,
    Visibility,
    Window,
    view,
)
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
    residual: Residual = OneStream()
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
        if isinstance(self.positions, Axial | Learned | Sinusoidal):
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
    def _what_can_be_reversed(self) -> Self:
        if not self.residual.is_reversible:
            return self
        whole = all(order == "sf" for order in self.depth.orders())
        if self.norm.placement != "pre" or not whole or self.memory or self.positions.by_distance:
            raise ValueError(
                "residual reversible needs norm.placement pre, blocks of attention and "
                "feed-forward, positions that are added or rotated, and no memory"
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
        self.is_reversible = choice.residual.is_reversible
        self.tiling: Tiling = choice.mixer.tiling
        self.tells_wide: bool = getattr(choice.mixer, "global_projections", False)
        self.taps = Taps()
        shape = choice.mixer.shape(choice.width)
        positions = choice.positions.build(choice.table_width, shape)
        self.local = choice.local
        self.local_rotation = choice.local_positions.build(1, shape).rotation
        self.embeddings = Embeddings(
            choice.embeddings, choice.norm, positions, choice.width, vocabulary_size, choice.dropout
        )
        self.blocks = nn.ModuleList(_blocks(choice))
        self.running = len(self.blocks)
        pre = choice.norm.placement == "pre"
        self.norm = choice.norm.build(choice.width) if pre else nn.Identity()

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates | None = None,
        rule: Visibility | None = None,
        noise: Noise | None = None,
        stop_after: int | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to states (B, L, D).

        ``rule`` takes the place of the encoder's own visibility; ``stop_after`` ends after that
        block, without the last norm. ``memory`` is seen as what stands before the rows, and notes
        what will stand before the next.
        """
        coordinates = coordinates or Coordinates.plain(pieces)
        site = None if self.taps.idle else Site(self.taps)
        x = self.embeddings(pieces, coordinates, noise, site and site.within("embeddings"))
        keys = None if memory is None else memory.before(coordinates)
        told = self._surroundings(rule or self.rule, coordinates, keys, site)
        if self.is_reversible:
            return self._reversed(x, list(told), noise, site, stop_after)
        for index, (block, around) in enumerate(zip(self.blocks, told, strict=False)):
            here = None if noise is None else noise.within(index)
            past = None if memory is None else memory.recall(index, x, coordinates)
            if site is None:
                x = block(x, around, here, None, past)
            else:
                x = block.forward(x, around, here, site.within(f"blocks.{index}"), past)
            if index == stop_after:
                return x
        x = self.norm(x)
        return x if site is None else site("output", x)

    def _reversed(
        self,
        x: Tensor,
        told: list[Surroundings],
        noise: Noise | None,
        site: Site | None,
        stop_after: int | None,
    ) -> Tensor:
        """The blocks as a stack that can be run backwards: x (B, L, D) to states (B, L, D)."""
        number = self.running if stop_after is None else stop_after + 1
        steps = [
            Step(
                cast(Block, self.blocks[index]),
                told[index],
                None if noise is None else noise.within(index),
                site and site.within(f"blocks.{index}"),
            )
            for index in range(number)
        ]
        # Who listens may change values on their way: those are kept.
        x = run_reversible(x, steps) if site is None else run_stored(x, steps)
        if stop_after is not None:
            return x
        x = self.norm(x)
        return x if site is None else site("output", x)

    def _surroundings(
        self,
        rule: Visibility,
        coordinates: Coordinates,
        keys: Coordinates | None,
        site: Site | None,
    ) -> Iterator[Surroundings]:
        """What each running block is told; blocks with the same rule are told the same."""
        relation = self.embeddings.positions.relation(coordinates, keys or coordinates)
        dense = relation is not None or self._looked_into(site)
        tiling: Tiling = "never" if dense else self.tiling
        known: dict[tuple[Visibility, bool], Surroundings] = {}
        for index in range(self.running):
            own = rule_at(index, rule, self.local)
            near = self.local is not None and self.local.holds(index)
            rotation = self.local_rotation if near else self.embeddings.positions.rotation
            if (own, near) not in known:
                known[own, near] = Surroundings(
                    view(own, coordinates, keys, tiling, self.tells_wide),
                    rotation(coordinates),
                    None if keys is None else rotation(keys),
                    relation,
                )
            yield known[own, near]

    def _looked_into(self, site: Site | None) -> bool:
        """Whether anyone listens to scores or weights, which only a dense view has."""
        return site is not None and any(
            site.within(f"blocks.{index}.attention").wants("scores", "weights")
            for index in range(self.running)
        )

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile the block (one graph serves all of them) and the joining of embeddings.

        ``dynamic`` makes one graph for rows of any number and length.
        """
        tune_compiler()
        for part in (self.embeddings.join, *self.blocks):
            part.compile(dynamic=dynamic)

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
    build = {
        "s": partial(choice.mixer.build, positions=choice.positions),
        "f": choice.feed_forward.build,
    }
    pre, blocks = choice.norm.placement == "pre", list[Block]()
    for index, order in enumerate(choice.depth.orders()):
        sublayers: dict[str, nn.Module] = {}
        norms: dict[str, nn.Module] = {}
        for letter in order:
            name, owner = SUBLAYERS[letter], choice.depth.owner(index, letter)
            if owner < index:
                sublayers[name] = blocks[owner].sublayers[name]
                norms[name] = blocks[owner].norms[name]
                continue
            skipped = index == 0 and not sublayers and choice.norm.skip_first
            sublayers[name] = build[letter](choice.width)
            norms[name] = nn.Identity() if skipped else choice.norm.build(choice.width)
        blocks.append(Block(sublayers, norms, pre, choice.dropout))
    return blocks


def rule_at(index: int, rule: Visibility, local: Local | None) -> Visibility:
    """Who may see whom in one block."""
    own = rule.at_block(index)
    if local is None or not local.holds(index):
        return own
    return own & Window(size=local.window)


def blocks_of(encoder: Encoder) -> list[Block]:
    """The blocks with their type."""
    return [cast(Block, block) for block in encoder.blocks]
