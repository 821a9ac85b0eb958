"""Visibility: the attention mask as a rule.

A rule is a function of the attributes of a query and of a key. Rules compose with ``&`` and ``|``.
Padding is always masked.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.core.config import Config
from bertwright.modules.token_tensors import TokenInfo


class Visibility(Config):
    """The attention mask as a rule."""

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        """Return whether queries may attend to keys, broadcastable to (B, L, L), bool."""
        raise TypeError(f"{type(self).__name__} is an axis, not a visibility")

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        """Return whether any query of a group may attend to any key of a group, (R, Q, K) bool.

        The attributes of ``query`` are (R, Q, 1, t), the attributes of ``key`` (R, 1, K, t). If an
        exact check is costly, the result may be True although no pair is allowed, but it is never
        False if one is.
        """
        return torch.ones_like((query.index >= key.index)[..., 0])

    def global_tokens(self, token_info: TokenInfo) -> Tensor | None:
        """Return the global tokens, (B or 1, L) bool; None if the rule has none.

        Global tokens attend to all tokens, and all tokens attend to them.
        """
        return None

    @property
    def depends_on_text_length(self) -> bool:
        """Return whether the rule depends on the length of the text, which later tokens change."""
        return False

    @property
    def distinguishes_segments(self) -> bool:
        """Return whether the rule depends on segment ids."""
        return False

    @property
    def stride(self) -> int:
        """Return the distance between adjacent positions in a tile; 1 without dilation."""
        return 1

    def map_rules(self, function: Callable[["Visibility"], "Visibility"]) -> "Visibility":
        """Return the rule with a function applied to it, or to each of the rules it combines."""
        return function(self)

    def at_block(self, index: int) -> "Visibility":
        """Return the rule for one encoder block."""
        return self

    def with_blocks(self, blocks: Sequence[int]) -> "Visibility":
        """Return the rule of an encoder with only these blocks, in order."""
        return self

    def at_head(self, index: int) -> "Visibility":
        """Return the rule for one head; the rule of a block is the union of its heads' rules."""
        return self

    def __and__(self, other: "Visibility") -> "Visibility":
        return AndVisibility(
            rules=(*members(self, AndVisibility), *members(other, AndVisibility))
        ).simplify()

    def __or__(self, other: "Visibility") -> "Visibility":
        return OrVisibility(rules=(*members(self, OrVisibility), *members(other, OrVisibility)))


class BidirectionalVisibility(Visibility):
    """Every token attends to every token."""

    kind: Literal["bidirectional"] = "bidirectional"

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return torch.ones_like(query.index >= key.index)


class CausalVisibility(Visibility):
    """A token attends to itself and to earlier tokens of the sequence."""

    kind: Literal["causal"] = "causal"

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return key.index <= query.index

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return key.index.amin(-1) <= query.index.amax(-1)


class ReverseCausalVisibility(Visibility):
    """A token attends to itself and to later tokens of the sequence."""

    kind: Literal["reversed"] = "reversed"

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return key.index >= query.index

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return key.index.amax(-1) >= query.index.amin(-1)


class ForwardBackwardVisibility(Visibility):
    """The first half of a hidden state is ``causal``, the second ``reversed`` (Peters et al. 2018).

    Together the halves depend on all tokens, and each half can still predict its next token. Only a
    mixer that computes the halves separately supports this.
    """

    kind: Literal["both-ways"] = "both-ways"

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return torch.ones_like(query.index >= key.index)


class WindowVisibility(Visibility):
    """A token attends to ``size`` tokens on each side (sliding window; Beltagy et al. 2020).

    If ``block`` is set, a block of that many tokens attends to ``size`` blocks on each side (Zaheer
    et al. 2020).
    """

    kind: Literal["window"] = "window"
    size: int = Field(ge=0, le=1 << 20)
    block: int = Field(default=1, ge=1, le=1 << 20)

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return (self._block_index(query) - self._block_index(key)).abs() <= self.size

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        queries, keys = self._block_index(query), self._block_index(key)
        return (keys.amin(-1) <= queries.amax(-1) + self.size) & (
            keys.amax(-1) >= queries.amin(-1) - self.size
        )

    def _block_index(self, token_info: TokenInfo) -> Tensor:
        return (
            token_info.index if self.block == 1 else token_info.resolved_position_ids // self.block
        )


class PermutationVisibility(Visibility):
    """A token attends to itself and to earlier tokens in factorisation order.

    A query token attends only to earlier tokens, and no token attends to a query token (Yang et al.
    2019, section 2.3).
    """

    kind: Literal["order"] = "order"

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        if query.factorisation_order is None or key.factorisation_order is None:
            return torch.ones_like(query.index >= key.index)
        allowed = key.factorisation_order <= query.factorisation_order
        if query.is_query_stream is not None and key.is_query_stream is not None:
            allowed = (
                key.factorisation_order < query.factorisation_order + ~query.is_query_stream
            ) & ~key.is_query_stream
        return allowed


class SameDocumentVisibility(Visibility):
    """A token attends only to its own document, so packed sequences do not leak."""

    kind: Literal["document"] = "document"

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        if query.document_ids is None or key.document_ids is None:
            return torch.ones_like(query.index >= key.index)
        return query.document_ids == key.document_ids

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        if query.document_ids is None or key.document_ids is None:
            return super().may_attend(query, key)
        queries, keys = query.document_ids, key.document_ids
        return (keys.amin(-1) <= queries.amax(-1)) & (keys.amax(-1) >= queries.amin(-1))


class _CompositeVisibility(Visibility):
    """A combination of rules."""

    rules: tuple[Visibility, ...] = Field(min_length=1)

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the pairs that the combination allows, given the pairs that two rules allow."""
        raise TypeError(f"{type(self).__name__} combines no rules")

    def visible(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return reduce(self.combine, (rule.visible(query, key) for rule in self.rules))

    def may_attend(self, query: TokenInfo, key: TokenInfo) -> Tensor:
        return reduce(self.combine, (rule.may_attend(query, key) for rule in self.rules))

    def map_rules(self, function: Callable[[Visibility], Visibility]) -> Visibility:
        return type(self)(rules=tuple(rule.map_rules(function) for rule in self.rules))

    def global_tokens(self, token_info: TokenInfo) -> Tensor | None:
        by_rule = (rule.global_tokens(token_info) for rule in self.rules)
        tokens = [is_global for is_global in by_rule if is_global is not None]
        return torch.stack(torch.broadcast_tensors(*tokens)).any(0) if tokens else None

    @property
    def depends_on_text_length(self) -> bool:
        return any(rule.depends_on_text_length for rule in self.rules)

    @property
    def distinguishes_segments(self) -> bool:
        return any(rule.distinguishes_segments for rule in self.rules)

    @property
    def stride(self) -> int:
        return max(rule.stride for rule in self.rules)

    def at_block(self, index: int) -> Visibility:
        return self.map_rules(lambda rule: rule.at_block(index))

    def with_blocks(self, blocks: Sequence[int]) -> Visibility:
        return self.map_rules(lambda rule: rule.with_blocks(blocks))

    def at_head(self, index: int) -> Visibility:
        return self.map_rules(lambda rule: rule.at_head(index))


class AndVisibility(_CompositeVisibility):
    """A pair is allowed if all ``rules`` allow it."""

    kind: Literal["and"] = "and"

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        return first & second

    def simplify(self) -> Visibility:
        """Return an equivalent rule without bidirectional and repeated rules."""
        rules = tuple(
            dict.fromkeys(r for r in self.rules if not isinstance(r, BidirectionalVisibility))
        )
        if not rules:
            return BidirectionalVisibility()
        return rules[0] if len(rules) == 1 else AndVisibility(rules=rules)


class OrVisibility(_CompositeVisibility):
    """A pair is allowed if any of the ``rules`` allows it."""

    kind: Literal["or"] = "or"

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        return first | second


def members(
    visibility: Visibility, kind: "type[AndVisibility | OrVisibility]"
) -> tuple[Visibility, ...]:
    """Return the rules that a rule of this kind combines, or else the rule itself."""
    return visibility.rules if isinstance(visibility, kind) else (visibility,)


ScanDirection = Literal["forward", "backward"]

SCAN_DIRECTIONS: dict[type[Visibility], tuple[ScanDirection, ...]] = {
    CausalVisibility: ("forward",),
    ReverseCausalVisibility: ("backward",),
    ForwardBackwardVisibility: ("forward", "backward"),
    BidirectionalVisibility: ("forward", "backward"),
}


def scan_directions(visibility: Visibility) -> tuple[ScanDirection, ...]:
    """Return the reading directions of a rule, one for each part of a hidden state.

    The result is empty unless the rule is a direction, or both, optionally within documents.
    """
    rules = [
        r for r in members(visibility, AndVisibility) if not isinstance(r, SameDocumentVisibility)
    ] or [BidirectionalVisibility()]
    return SCAN_DIRECTIONS.get(type(rules[0]), ()) if len(rules) == 1 else ()


def supports_recurrence(visibility: Visibility) -> bool:
    """Return whether a recurrent mixer can implement the rule.

    Every token must attend to all that its neighbour attends to, or to nothing before itself.
    """
    supported = (BidirectionalVisibility, SameDocumentVisibility, *SCAN_DIRECTIONS)
    return all(isinstance(member, supported) for member in members(visibility, AndVisibility))


def sees_self_only(visibility: Visibility) -> bool:
    """Return whether a token attends only to itself."""
    kinds = {type(member) for member in members(visibility, AndVisibility)}
    return {CausalVisibility, ReverseCausalVisibility} <= kinds


def is_causal(visibility: Visibility) -> bool:
    """Return whether tokens attend to no later token."""
    return any(
        isinstance(member, CausalVisibility) for member in members(visibility, AndVisibility)
    )


def reads_backward(visibility: Visibility) -> bool:
    """Return whether tokens attend to no earlier token."""
    return any(
        isinstance(member, ReverseCausalVisibility) for member in members(visibility, AndVisibility)
    )


def is_split_by_direction(visibility: Visibility) -> bool:
    """Return whether the two halves of a hidden state have different masks."""
    if isinstance(visibility, AndVisibility | OrVisibility):
        return any(is_split_by_direction(member) for member in visibility.rules)
    return isinstance(visibility, ForwardBackwardVisibility)


def is_bidirectional(visibility: Visibility) -> bool:
    """Return whether a token attends to all tokens of its document."""
    return all(
        isinstance(r, BidirectionalVisibility | SameDocumentVisibility)
        for r in members(visibility, AndVisibility)
    )
