"""Sparse visibility for long sequences: global tokens and random blocks.

Positions are counted from the start of a text, in blocks of ``block`` positions.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from bertwright.core.rng import stream_key as random_key
from bertwright.modules.attention.mask.visibility import AndVisibility, OrVisibility, Visibility
from bertwright.modules.dropout_rng import uniform_for_seed
from bertwright.modules.token_tensors import TokenInfo


class GlobalVisibility(Visibility):
    """Global tokens attend to all tokens, and all tokens attend to them (Beltagy et al. 2020).

    Global tokens are the ``first`` and ``last`` blocks of each text, the ``positions``, and all
    tokens of ``segment``, such as the question; a single text is segment 0. The task sets the
    segment with :func:`with_global_segment`.
    """

    kind: Literal["global"] = "global"
    first: int = Field(default=1, ge=0, le=1 << 20)
    last: int = Field(default=0, ge=0, le=1 << 20)
    positions: tuple[Annotated[int, Field(ge=0, le=1 << 20)], ...] = Field(
        default=(), max_length=65_536
    )
    segment: int | None = Field(default=None, ge=0, le=1)
    block: int = Field(default=1, ge=1, le=1 << 20)

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return self._is_global(query) | self._is_global(key)

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return self._is_global(query).any(-1) | self._is_global(key).any(-1)

    def global_tokens(self, token_info: TokenInfo) -> Tensor | None:
        is_global = self._is_global(token_info)
        if token_info.document_ids is None:
            return is_global
        return is_global & (token_info.document_ids >= 0)

    @property
    def depends_on_text_length(self) -> bool:
        return self.last > 0

    @property
    def distinguishes_segments(self) -> bool:
        return self.segment is not None

    def _is_global(self, token_info: TokenInfo) -> Tensor:
        blocks = token_info.resolved_position_ids // self.block
        # Memory has positions below 0 and does not count as the beginning of a text.
        is_global = (blocks >= 0) & (blocks < self.first)
        if self.last:
            is_global = is_global | (blocks > _last_block(token_info, self.block) - self.last)
        for position in self.positions:
            is_global = is_global | (token_info.resolved_position_ids == position)
        if self.segment is not None:
            segment_ids = (
                torch.zeros_like(token_info.resolved_position_ids)
                if token_info.segment_ids is None
                else token_info.segment_ids
            )
            # Padding also has segment 0.
            is_real = True if token_info.document_ids is None else token_info.document_ids >= 0
            is_global = is_global | ((segment_ids == self.segment) & is_real)
        return is_global


def with_global_segment(visibility: Visibility, segment: int | None) -> Visibility:
    """Return the rule with ``segment`` as the global segment; None for no segment.

    Rules without global tokens, or with global blocks, stay unchanged.
    """

    def replace_segment(rule: Visibility) -> Visibility:
        if isinstance(rule, GlobalVisibility) and rule.block == 1:
            return rule.model_copy(update={"segment": segment})
        return rule

    return visibility.map_rules(replace_segment)


def get_global_segment(visibility: Visibility) -> int | None:
    """Return the segment whose tokens are global; None if there is none."""
    if isinstance(visibility, AndVisibility | OrVisibility):
        segments = (get_global_segment(member) for member in visibility.rules)
        return next((segment for segment in segments if segment is not None), None)
    return visibility.segment if isinstance(visibility, GlobalVisibility) else None


def with_global_first_token(visibility: Visibility) -> Visibility:
    """Return the rule with a global first token if it supports global tokens but has none."""

    def add_first(rule: Visibility) -> Visibility:
        is_global = isinstance(rule, GlobalVisibility)
        if is_global and not (rule.first or rule.last or rule.positions):
            return rule.model_copy(update={"first": 1})
        return rule

    return visibility.map_rules(add_first)


class RandomBlocksVisibility(Visibility):
    """A block of ``block`` tokens attends to ``number`` random other blocks (Zaheer et al. 2020).

    They are drawn without replacement, excluding the first and the last block, the block itself and
    its neighbours. They depend on ``seed``, the encoder block, the index of the block of tokens and
    the number of blocks in the text. Heads take turns between ``draws`` different draws; with 1
    they share one.
    """

    kind: Literal["random-blocks"] = "random-blocks"
    number: int = Field(default=3, ge=1, le=65_536)
    block: int = Field(default=64, ge=1, le=1 << 20)
    seed: int = Field(default=0, ge=0)
    draws: int = Field(default=1, ge=1, le=64)
    layers: tuple[NonNegativeInt, ...] | None = Field(default=None, min_length=1)
    """Indices of the encoder blocks before others were removed; None if none was.

    The last one also applies to all further blocks.
    """
    layer: int = Field(default=0, ge=0, exclude=True)
    """Index of the encoder block, set by ``at_block``; not part of a recipe."""
    draw: int | None = Field(default=None, ge=0, exclude=True)
    """Index of the draw, set by ``at_head``; not part of a recipe. None for all draws."""

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        key_blocks = key.resolved_position_ids // self.block
        allowed = torch.zeros_like(query.resolved_position_ids >= key.resolved_position_ids)
        for random_block in self.random_blocks(query):
            allowed = allowed | (random_block == key_blocks)
        return allowed

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        key_blocks = key.resolved_position_ids // self.block
        low, high = key_blocks.amin(-1, keepdim=True), key_blocks.amax(-1, keepdim=True)
        allowed = super().may_attend(query, key) & False
        for random_block in self.random_blocks(query):
            allowed = allowed | ((random_block >= low) & (random_block <= high)).any(-1)
        return allowed

    @property
    def depends_on_text_length(self) -> bool:
        return True

    def at_block(self, index: int) -> Visibility:
        return self.model_copy(update={"layer": self._layer_at(index)})

    def with_blocks(self, blocks: Sequence[int]) -> Visibility:
        return self.model_copy(update={"layers": tuple(map(self._layer_at, blocks))})

    def _layer_at(self, index: int) -> int:
        return index if self.layers is None else self.layers[min(index, len(self.layers) - 1)]

    def at_head(self, index: int) -> Visibility:
        if self.draws == 1:
            return self
        return self.model_copy(update={"draw": index % self.draws})

    def random_blocks(self, token_info: TokenInfo) -> list[Tensor]:
        """Return the random blocks of each token, as ``number`` tensors a draw; -1 for none."""
        if self.draws == 1:
            return self._draw_blocks(token_info, self.layer)
        draws = range(self.draws) if self.draw is None else (self.draw,)
        return [b for draw in draws for b in self._draw_blocks(token_info, self.layer, draw)]

    def _draw_blocks(self, token_info: TokenInfo, *stream: int) -> list[Tensor]:
        """Return the random blocks of each token in one draw, as ``number`` tensors."""
        current = token_info.resolved_position_ids // self.block
        last = _last_block(token_info, self.block)
        low, high = (current - 1).clamp(min=1), torch.minimum(current + 1, last - 1)
        num_near = (high - low + 1).clamp(min=0)
        num_free = (last - 1 - num_near).clamp(min=0)
        seed = random_key(self.seed, "random blocks", *stream)
        picks: list[Tensor] = []
        for draw in range(self.number):
            random_number = uniform_for_seed(seed, current * self.number + draw)
            pick = (random_number * (num_free - draw)).long()
            for earlier in picks:
                pick = pick + (pick >= earlier)
            pick = torch.where(draw < num_free, pick, _NO_PICK)
            # Picks are sorted, so that the next one can skip each of them in turn.
            picks = list(torch.stack([*picks, pick]).sort(0).values)
        blocks = [pick + 1 + num_near * (pick + 1 >= low) for pick in picks]
        return [torch.where(pick == _NO_PICK, -1, b) for pick, b in zip(picks, blocks, strict=True)]


_NO_PICK = 1 << 40
"""A value larger than every pick."""


class ShortTextVisibility(Visibility):
    """Every token attends to every token in a text of at most ``length`` tokens.

    In short texts, blocks would save nothing (the class of Transformers for Zaheer et al. 2020).
    """

    kind: Literal["short"] = "short"
    length: int = Field(ge=1, le=1 << 20)

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return self._is_short(query) & self._is_short(key)

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return self._is_short(query).any(-1) & self._is_short(key).any(-1)

    @property
    def depends_on_text_length(self) -> bool:
        return True

    def _is_short(self, token_info: TokenInfo) -> Tensor:
        assert token_info.text_lengths is not None
        return token_info.text_lengths <= self.length


def _last_block(token_info: TokenInfo, block: int) -> Tensor:
    assert token_info.text_lengths is not None, "call with_text_lengths() first"
    return (token_info.text_lengths - 1) // block
