"""Who may see whom, as a rule over coordinates.

A rule is a function of the coordinates of a query and of a key. Rules compose with ``&`` and ``|``.
Padding is never seen, whatever the rule.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.axes import Choice
from bertwright.encoder.stream import Coordinates


class Visibility(Choice):
    """The axis: a rule ``visible(query, key)``."""

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        """Whether query places may see key places; both sides broadcast to (B, L, L), bool."""
        raise TypeError(f"{type(self).__name__} is an axis, not a rule")

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        """Whether any place of a group may see any of another: query (R, Q, 1, t) and key (R, 1, K,
        t) to (R, Q, K), bool. Never False where one does; True where that would take long to say.
        """
        return torch.ones_like((query.place >= key.place)[..., 0])

    def wide(self, places: Coordinates) -> Tensor | None:
        """The places that see all and are seen by all, so far as other rules allow: (B or 1, L)
        bool, None where there are none."""
        return None

    @property
    def by_extent(self) -> bool:
        """Whether it asks how long a text is, which places that come later change."""
        return False

    @property
    def tells_segments(self) -> bool:
        """Whether it asks which text of a pair a place belongs to."""
        return False

    @property
    def stride(self) -> int:
        """How far apart places stand that are laid out side by side where a rule is in tiles: 1
        where neighbours are seen together."""
        return 1

    def at_block(self, index: int) -> "Visibility":
        """The rule of one block of the encoder, where blocks differ."""
        return self

    def at_head(self, index: int) -> "Visibility":
        """The rule of one head of a block, where heads differ; the rule of the block says what any
        of them sees."""
        return self

    def __and__(self, other: "Visibility") -> "Visibility":
        return Both(rules=(*members(self, Both), *members(other, Both))).simplest()

    def __or__(self, other: "Visibility") -> "Visibility":
        return Either(rules=(*members(self, Either), *members(other, Either)))


class Bidirectional(Visibility):
    """Every place sees every place."""

    kind: Literal["bidirectional"] = "bidirectional"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return torch.ones_like(query.place >= key.place)


class Causal(Visibility):
    """A place sees itself and what stands before it in the row."""

    kind: Literal["causal"] = "causal"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return key.place <= query.place

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        return key.place.amin(-1) <= query.place.amax(-1)


class Reversed(Visibility):
    """A place sees itself and what stands behind it in the row."""

    kind: Literal["reversed"] = "reversed"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return key.place >= query.place

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        return key.place.amax(-1) >= query.place.amin(-1)


class BothWays(Visibility):
    """The first half of a state sees as ``causal``, the second as ``reversed``; so together they
    see everything, and each still has its next piece to guess (Peters et al. 2018).

    Only a mixer that keeps the two halves apart can keep this rule.
    """

    kind: Literal["both-ways"] = "both-ways"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return torch.ones_like(query.place >= key.place)


class Window(Visibility):
    """A place sees ``size`` places to each side (sliding window; Beltagy et al. 2020).

    With ``block`` both are counted in blocks of so many places: a block sees ``size`` blocks to
    each side (Zaheer et al. 2020).
    """

    kind: Literal["window"] = "window"
    size: int = Field(ge=0, le=1 << 20)
    block: int = Field(default=1, ge=1, le=1 << 20)

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return (self._block(query) - self._block(key)).abs() <= self.size

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        asking, asked = self._block(query), self._block(key)
        return (asked.amin(-1) <= asking.amax(-1) + self.size) & (
            asked.amax(-1) >= asking.amin(-1) - self.size
        )

    def _block(self, places: Coordinates) -> Tensor:
        return places.place if self.block == 1 else places.at // self.block


class InOrder(Visibility):
    """A place sees what comes no later in the factorisation; one that asks, what comes before it
    (Yang et al. 2019, section 2.3). Nobody sees a place that asks."""

    kind: Literal["order"] = "order"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        if query.order is None or key.order is None:
            return torch.ones_like(query.place >= key.place)
        seen = key.order <= query.order
        if query.asking is not None and key.asking is not None:
            seen = (key.order < query.order + ~query.asking) & ~key.asking
        return seen


class SameDocument(Visibility):
    """A place sees its own document only: packed rows do not leak."""

    kind: Literal["document"] = "document"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        if query.document is None or key.document is None:
            return torch.ones_like(query.place >= key.place)
        return query.document == key.document

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        if query.document is None or key.document is None:
            return super().touches(query, key)
        asking, asked = query.document, key.document
        return (asked.amin(-1) <= asking.amax(-1)) & (asked.amax(-1) >= asking.amin(-1))


class _Several(Visibility):
    """Several rules as one."""

    rules: tuple[Visibility, ...] = Field(min_length=1)

    def wide(self, places: Coordinates) -> Tensor | None:
        found = [w for w in (rule.wide(places) for rule in self.rules) if w is not None]
        return torch.stack(torch.broadcast_tensors(*found)).any(0) if found else None

    @property
    def by_extent(self) -> bool:
        return any(rule.by_extent for rule in self.rules)

    @property
    def tells_segments(self) -> bool:
        return any(rule.tells_segments for rule in self.rules)

    @property
    def stride(self) -> int:
        return max(rule.stride for rule in self.rules)

    def at_block(self, index: int) -> Visibility:
        return type(self)(rules=tuple(rule.at_block(index) for rule in self.rules))

    def at_head(self, index: int) -> Visibility:
        return type(self)(rules=tuple(rule.at_head(index) for rule in self.rules))


class Both(_Several):
    """All of several rules allow it."""

    kind: Literal["and"] = "and"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        seen = self.rules[0].visible(query, key)
        for rule in self.rules[1:]:
            seen = seen & rule.visible(query, key)
        return seen

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        touched = self.rules[0].touches(query, key)
        for rule in self.rules[1:]:
            touched = touched & rule.touches(query, key)
        return touched

    def simplest(self) -> Visibility:
        """Without rules that hide nothing, and without repetition."""
        rules = tuple(dict.fromkeys(r for r in self.rules if not isinstance(r, Bidirectional)))
        if not rules:
            return Bidirectional()
        return rules[0] if len(rules) == 1 else Both(rules=rules)


class Either(_Several):
    """One of several rules allows it."""

    kind: Literal["or"] = "or"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        seen = self.rules[0].visible(query, key)
        for rule in self.rules[1:]:
            seen = seen | rule.visible(query, key)
        return seen

    def touches(self, query: Coordinates, key: Coordinates) -> Tensor:
        touched = self.rules[0].touches(query, key)
        for rule in self.rules[1:]:
            touched = touched | rule.touches(query, key)
        return touched


def members(rule: Visibility, kind: "type[Both | Either]") -> tuple[Visibility, ...]:
    """The rules that a rule is made of by ``&`` or ``|``; itself where it is not."""
    return rule.rules if isinstance(rule, kind) else (rule,)
