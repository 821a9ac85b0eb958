"""The encoder: embeddings, blocks, a last norm."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Self, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from bertwright.axes import Settings
from bertwright.encoder.block import SUBLAYERS, Block
from bertwright.encoder.depth import Depth, Stack
from bertwright.encoder.embeddings import EmbeddingChoice, Embeddings, Pieces
from bertwright.encoder.feed_forward import FeedForward, Gelu
from bertwright.encoder.initialisation import Initialisation, Published
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.locality import Local
from bertwright.encoder.mixers.attention import AttentionChoice, Mixer
from bertwright.encoder.norms import LayerNormChoice, Norm
from bertwright.encoder.positions import Learned, Positions, Rotary
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.taps import Site, Taps
from bertwright.encoder.visibility import Bidirectional, Visibility, Window, view
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
    dropout: float = 0.0
    initialisation: Initialisation = Published()

    def build(self, vocabulary_size: int) -> "Encoder":
        """An encoder with parameters yet to be initialised."""
        return Encoder(self, vocabulary_size)

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

    ``taps`` is the one mechanism by which values inside are read and replaced.
    """

    def __init__(self, choice: EncoderChoice, vocabulary_size: int) -> None:
        super().__init__()
        self.rule = choice.visibility
        self.taps = Taps()
        heads = (
            choice.mixer.num_heads(choice.width) if isinstance(choice.mixer, AttentionChoice) else 1
        )
        positions = choice.positions.build(choice.table_width, choice.width // heads)
        self.local = choice.local
        self.local_rotation = choice.local_positions.build(1, choice.width // heads).rotation
        self.embeddings = Embeddings(
            choice.embeddings, choice.norm, positions, choice.width, vocabulary_size, choice.dropout
        )
        self.blocks = nn.ModuleList(
            _block(choice, order, first=index == 0)
            for index, order in enumerate(choice.depth.orders())
        )
        pre = choice.norm.placement == "pre"
        self.norm = choice.norm.build(choice.width) if pre else nn.Identity()

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates | None = None,
        rule: Visibility | None = None,
        noise: Noise | None = None,
        stop_after: int | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to states (B, L, D).

        ``rule`` takes the place of the encoder's own visibility; ``stop_after`` ends after that
        block, without the last norm.
        """
        coordinates = coordinates or Coordinates.plain(pieces)
        site = None if self.taps.idle else Site(self.taps)
        x = self.embeddings(pieces, coordinates, noise, site and site.within("embeddings"))
        rule = rule or self.rule
        whole = view(rule, coordinates), self.embeddings.positions.rotation(coordinates)
        near = whole
        if self.local is not None:
            window = view(rule & Window(size=self.local.window), coordinates)
            near = window, self.local_rotation(coordinates)
        for index, block in enumerate(self.blocks):
            is_near = self.local is not None and self.local.holds(index)
            seen, rotation = near if is_near else whole
            here = None if noise is None else noise.within(index)
            if site is None:
                x = block(x, seen, rotation, here)
            else:
                x = block.forward(x, seen, rotation, here, site.within(f"blocks.{index}"))
            if index == stop_after:
                return x
        x = self.norm(x)
        return x if site is None else site("output", x)

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


def _block(choice: EncoderChoice, order: str, first: bool) -> Block:
    build = {"s": choice.mixer.build, "f": choice.feed_forward.build}
    sublayers = {SUBLAYERS[letter]: build[letter](choice.width) for letter in order}
    norms: dict[str, nn.Module] = {}
    for number, name in enumerate(sublayers):
        skipped = first and number == 0 and choice.norm.skip_first
        norms[name] = nn.Identity() if skipped else choice.norm.build(choice.width)
    return Block(sublayers, norms, choice.norm.placement == "pre", choice.dropout)


def blocks_of(encoder: Encoder) -> list[Block]:
    """The blocks with their type."""
    return [cast(Block, block) for block in encoder.blocks]
