"""The encoder: embeddings, blocks, a last norm."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from bertwright.encoder.block import SUBLAYERS, Block, numbered, taken
from bertwright.encoder.bottleneck import BottleneckBlock
from bertwright.encoder.cache import Cache, Past
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.dropout import after_block, at_input
from bertwright.encoder.embeddings import Embeddings
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.locality import rule_at
from bertwright.encoder.memory import Memory
from bertwright.encoder.mixers import Attention, AttentionChoice
from bertwright.encoder.passage import Notes, Step
from bertwright.encoder.runs import runs
from bertwright.encoder.stream import Coordinates, Source
from bertwright.encoder.surroundings import Across, Surroundings
from bertwright.encoder.taps import Site, Taps
from bertwright.encoder.visibility import (
    Bidirectional,
    Tiling,
    Visibility,
    is_read_on,
    seen,
    view,
    ways,
)
from bertwright.errors import UserError
from bertwright.machine.compiler import of_any_number, tune_compiler


class Encoder(nn.Module):
    """Pieces and coordinates to states.

    ``taps`` is the one mechanism by which values inside are read and replaced; ``running`` is how
    many of the blocks are passed through.
    """

    def __init__(self, choice: EncoderChoice, vocabulary_size: int) -> None:
        super().__init__()
        self.rule = choice.visibility
        self.tiling: Tiling = choice.mixer.tiling
        self.tells_wide = choice.mixer.asks_wide
        self.taps, self.prefix = Taps(), ""
        shape = choice.mixer.shape(choice.inner_width)
        self.heads = shape.heads
        entry = choice.entry_width
        positions = choice.positions.build(choice.embeddings.sum_width(entry), shape)
        self.local = choice.local
        self.local_rotation = choice.local_positions.build(1, shape).rotation
        self.embeddings = Embeddings(
            choice.embeddings,
            choice.norm,
            positions,
            entry,
            vocabulary_size,
            at_input(choice.dropout),
            choice.num_parts,
        )
        self.ways = ways(choice.visibility) if choice.mixer.recurrent else ()
        self.blocks = nn.ModuleList(_blocks(choice))
        self.passage = choice.residual.passage(choice.depth.passage(choice.width))
        self.running, self.compiled = len(self.blocks), False
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
        wanted: Tensor | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to states (B, L, D), or to those of the ``wanted`` flat places (M,)
        alone, (M, D), for which what follows the last mixing of places is computed only.

        ``rule`` takes the place of the encoder's own visibility; ``stop_after`` ends after that
        block, without the last norm. ``memory`` is seen as what stands before the rows, and notes
        what will stand before the next; a ``Cache`` is one for rows that are read in parts.
        ``notes`` is written to by a depth that has something to say of its pass. ``source`` is what
        the blocks of a decoder read from.
        """
        coordinates = coordinates or Coordinates.plain(pieces)
        site = None if self.taps.idle else Site(self.taps, self.prefix)
        x = self.embeddings(pieces, coordinates, noise, site and site.within("embeddings"))
        keys = None if memory is None else memory.before(coordinates)
        across = None
        if source is not None:
            across = Across(source.states, view(Bidirectional(), coordinates, source.coordinates))
        made = [x] if self.looks_back else None
        if stop_after is not None and not 0 <= stop_after < len(self.blocks):
            raise UserError(f"there is no block {stop_after}: the last is {len(self.blocks) - 1}")
        last = self.running - 1 if stop_after is None else stop_after
        blocks = range(min(last + 1, self.running))
        told = self._told(pieces, blocks, rule or self.rule, coordinates, keys, across, site)
        narrowed = wanted if site is None and self.passage.narrows else None
        if narrowed is not None and self.compiled:
            of_any_number(narrowed)

        def step(index: int) -> Step:
            block = cast(Block, self.blocks[index])
            return Step(
                block,
                told[index],
                None if noise is None else noise.within(index),
                site and site.within(f"blocks.{index}"),
                self.embeddings.positions.before(index, coordinates),
                None if memory is None else partial(self._past, memory, index, coordinates),
                made,
                narrowed if index == blocks[-1] and block.narrows else None,
            )

        document = coordinates.document
        real = None if document is None else document >= 0
        x = self.passage(x, blocks, step, noise, real, notes)
        if stop_after is None or stop_after >= self.running:
            x = self.norm(x)
            if site is not None:
                x = site("output", x)
                self.taps.end()
        if wanted is not None and x.dim() == pieces.dim() + 1:
            x, _ = taken(x, None, wanted)
        return x

    def _told(
        self,
        pieces: Tensor,
        blocks: Sequence[int],
        rule: Visibility,
        coordinates: Coordinates,
        keys: Coordinates | None,
        across: Across | None,
        site: Site | None,
    ) -> list[Surroundings]:
        """What each block is told; blocks with the same rule are told the same."""
        if self.ways and not is_read_on(rule):
            raise ValueError(f"a recurrent mixer reads place by place and cannot keep {rule!r}")
        relation = self.embeddings.positions.relation(coordinates, keys or coordinates)
        dense = relation is not None or self._looked_into(blocks, site)
        tiling: Tiling = "never" if dense else self.tiling
        known: dict[tuple[Visibility, bool], Surroundings] = {}
        told: list[Surroundings] = []
        for index in blocks:
            own = rule_at(index, rule, self.local)
            near = self.local is not None and self.local.holds(index)
            rotation = self.local_rotation if near else self.embeddings.positions.rotation
            if (own, near) not in known:
                own_view = view(own, coordinates, keys, tiling, self.tells_wide, self.heads)
                known[own, near] = Surroundings(
                    own_view,
                    rotation(coordinates),
                    None if keys is None else rotation(keys),
                    relation,
                    {way: runs(own_view, way, pieces) for way in self.ways},
                    across,
                )
            told.append(known[own, near])
        return told

    def _past(
        self, memory: Memory | Cache, block: int, coordinates: Coordinates, x: Tensor
    ) -> Past:
        if self.ways:
            assert isinstance(memory, Memory), "a recurrent mixer keeps no keys and values"
            return memory.carried(block)
        return memory.recall(block, x, coordinates)

    def _looked_into(self, blocks: Sequence[int], site: Site | None) -> bool:
        """Whether anyone listens to scores or weights, which only a dense view has."""
        return site is not None and any(
            site.within(f"blocks.{index}.attention").wants("scores", "weights") for index in blocks
        )

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile the block (one graph serves all of them) and the joining of embeddings.

        ``dynamic`` makes one graph for rows of any number and length.
        """
        tune_compiler()
        self.compiled = True
        self.embeddings.join.compile(dynamic=dynamic)
        for block in blocks_of(self):
            block.compile_parts(dynamic)

    def fuse_attention(self) -> None:
        """Let attention compile what stands between its products into one loop when called."""
        for part in self.modules():
            if isinstance(part, Attention):
                part.fuses = True

    @property
    def longest(self) -> int | None:
        """The longest row that the positions allow; None where there is no limit."""
        return self.embeddings.positions.longest

    def seen(self, block: int, coordinates: Coordinates) -> Tensor:
        """Which places each place may see in a block, by the encoder's own rule: (B, 1, L, L) bool,
        or (B, H, L, L) where heads differ; what padding sees says nothing."""
        return seen(rule_at(block, self.rule, self.local), coordinates, self.heads)

    def record(
        self, *patterns: str, gradients: bool = False
    ) -> AbstractContextManager[dict[str, Tensor]]:
        """Collect the values with these names while the context is open."""
        return self.taps.record(*patterns, gradients=gradients)

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Put ``function(value)`` in the place of the values with this name."""
        return self.taps.replace(pattern, function)

    @contextmanager
    def gate(self, gates: dict[str, Tensor]) -> Generator[None]:
        """Multiply the values with these names, e.g. ``blocks.3.attention.context`` by (H, 1, 1).

        A gate of shape (B, H, 1, 1) acts per example; gradients with respect to a gate are the
        importances of what it gates.
        """
        with ExitStack() as stack:
            for name, gate in gates.items():

                def gated(value: Tensor, gate: Tensor = gate) -> Tensor:
                    return value * gate.to(value.device)

                stack.enter_context(self.replace(name, gated))
            yield

    @contextmanager
    def forbid(self, block: int, edges: Tensor) -> Generator[None]:
        """Hide edges of one block: ``edges`` bool, broadcast to (B, H, L, L), True is hidden. Who
        is left nothing to see reads zeros."""

        def hide(scores: Tensor) -> Tensor:
            return scores.masked_fill(edges, torch.finfo(scores.dtype).min)

        def unread(weights: Tensor) -> Tensor:
            return weights.masked_fill(edges, 0.0)

        attention = f"blocks.{block}.attention"
        with (
            self.replace(f"{attention}.scores", hide),
            self.replace(f"{attention}.weights", unread),
        ):
            yield

    @contextmanager
    def pass_by(self, block: int) -> Generator[None]:
        """Let a block give on what it is given."""
        given: list[Tensor] = []

        def keep(value: Tensor) -> Tensor:
            given[:] = [value]
            return value

        with (
            self.replace(f"blocks.{block}.input", keep),
            self.replace(f"blocks.{block}.residual", lambda _: given[0]),
        ):
            yield


def _blocks(choice: EncoderChoice) -> list[Block]:
    blocks, number = list[Block](), 0
    orders, pre = choice.depth.orders(), choice.norm.first
    for index, (order, (width, written)) in enumerate(
        zip(orders, choice.inner_widths, strict=True)
    ):
        sublayers: dict[str, nn.Module] = {}
        norms: dict[str, nn.Module] = {}
        weights: dict[str, nn.Module] = {}
        widths: dict[str, int] = {}
        for place, letter in enumerate(order):
            name = numbered(SUBLAYERS[letter], order[: place + 1].count(letter))
            number += 1
            weighing = choice.residual.weights(number)
            if weighing is not None:
                weights[name] = weighing
            reads, width = width, written if letter == "s" else width
            widths[name] = width
            owner = choice.depth.owner(index, letter)
            if owner < index:
                sublayers[name] = blocks[owner].sublayers[name]
                norms[name] = blocks[owner].norms[name]
                continue
            skipped = index == 0 and not sublayers and choice.norm.skips_first
            sublayers[name] = _sublayer(choice, index, letter, reads, width)
            of_norm = reads if pre else width
            norms[name] = nn.Identity() if skipped else choice.norm.build(of_norm)
        drop = after_block(choice.dropout, index + 1 == len(orders))
        join = choice.residual.join(index)
        block = Block(sublayers, norms, weights, pre, drop, join, widths)
        if choice.bottleneck is not None:
            block = BottleneckBlock(block, choice.bottleneck.ways(choice.width, choice.norm))
        blocks.append(block)
    return blocks


def _sublayer(choice: EncoderChoice, block: int, letter: str, reads: int, writes: int) -> nn.Module:
    norm, positions, mixer = choice.norm, choice.positions, choice.mixer_at(block)
    if letter == "f":
        return choice.feed_forward_at(block).build(writes, norm)
    if letter == "c":
        assert isinstance(mixer, AttentionChoice), "a decoder choice takes no other mixer"
        return mixer.across(writes, norm)
    if choice.bottleneck is None:
        return mixer.build_between(reads, writes, positions, norm, choice.visibility)
    assert isinstance(mixer, AttentionChoice), "no other mixer stands in a bottleneck"
    projection = choice.bottleneck.projection(choice.width, mixer.bias, norm)
    return mixer.build(writes, positions, norm, projection)


def blocks_of(encoder: Encoder) -> list[Block]:
    """The blocks with their type."""
    return [cast(Block, block) for block in encoder.blocks]
