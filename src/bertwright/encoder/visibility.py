"""Who may see whom, as a rule over coordinates.

A rule is a function of the coordinates of a query and of a key. Rules compose with ``&`` and ``|``.
Padding is never seen, whatever the rule. A kernel gets the rule evaluated as little as it can be:
nothing at all where everyone sees everyone, a flag for plain causal rows, a dense mask otherwise.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bertwright.axes import Choice
from bertwright.encoder.stream import Coordinates

Way = Literal["forward", "backward"]


class Visibility(Choice):
    """The axis: a rule ``visible(query, key)``."""

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        """Whether query places may see key places; both sides broadcast to (B, L, L), bool."""
        raise TypeError(f"{type(self).__name__} is an axis, not a rule")

    def __and__(self, other: "Visibility") -> "Visibility":
        return Both(rules=(*_members(self, Both), *_members(other, Both))).simplest()

    def __or__(self, other: "Visibility") -> "Visibility":
        return Either(rules=(*_members(self, Either), *_members(other, Either)))


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


class Reversed(Visibility):
    """A place sees itself and what stands behind it in the row."""

    kind: Literal["reversed"] = "reversed"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return key.place >= query.place


class BothWays(Visibility):
    """The first half of a state sees as ``causal``, the second as ``reversed``; so together they
    see everything, and each still has its next piece to guess (Peters et al. 2018).

    Only a mixer that keeps the two halves apart can keep this rule.
    """

    kind: Literal["both-ways"] = "both-ways"

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return torch.ones_like(query.place >= key.place)


class Window(Visibility):
    """A place sees ``size`` places to each side (sliding window; Beltagy 2020)."""

    kind: Literal["window"] = "window"
    size: int

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        return (query.place - key.place).abs() <= self.size


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


class Both(Visibility):
    """All of several rules allow it."""

    kind: Literal["and"] = "and"
    rules: tuple[Visibility, ...]

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        seen = self.rules[0].visible(query, key)
        for rule in self.rules[1:]:
            seen = seen & rule.visible(query, key)
        return seen

    def simplest(self) -> Visibility:
        """Without rules that hide nothing, and without repetition."""
        rules = tuple(dict.fromkeys(r for r in self.rules if not isinstance(r, Bidirectional)))
        if not rules:
            return Bidirectional()
        return rules[0] if len(rules) == 1 else Both(rules=rules)


class Either(Visibility):
    """One of several rules allows it."""

    kind: Literal["or"] = "or"
    rules: tuple[Visibility, ...]

    def visible(self, query: Coordinates, key: Coordinates) -> Tensor:
        seen = self.rules[0].visible(query, key)
        for rule in self.rules[1:]:
            seen = seen | rule.visible(query, key)
        return seen


@dataclass(frozen=True, eq=False)
class View:
    """A rule evaluated for one batch.

    ``shape`` says how: ``all`` (nothing is hidden), ``causal`` (plain causal rows), ``documents``
    (contiguous documents, bidirectional) or ``mask``. ``mask`` (B, 1, L, L) bool is True where a
    key is seen; a row that sees nothing is True throughout there and marked in ``blind``
    (B, 1, L, 1), so that no kernel meets an empty softmax. ``bounds`` (int32) says where each run
    of one document starts in the flattened rows, for kernels that lay documents out by length.
    ``order`` says what a real place sees of the real places, where that is all of them or all up to
    itself; ``real`` (B, L) bool is which those are, None where all are.
    """

    shape: Literal["all", "causal", "documents", "mask"]
    mask: Tensor | None = None
    blind: Tensor | None = None
    bounds: Tensor | None = None
    order: Literal["all", "causal"] | None = None
    real: Tensor | None = None


def view(rule: Visibility, coordinates: Coordinates, keys: Coordinates | None = None) -> View:
    """Evaluate a rule for a batch, as little as it allows; ``keys`` where they are not the same
    places as the queries."""
    document = coordinates.document if keys is None else keys.document
    members = _members(rule, Both)
    if document is None:
        members = tuple(r for r in members if not isinstance(r, SameDocument))
    order = _order(members)
    if document is None and (order == "all" or (order == "causal" and keys is None)):
        return View(order, order=order)
    seen = rule.visible(coordinates.queries(), (keys or coordinates).keys())
    if document is not None:
        seen = seen & (document >= 0)[:, None, :]
    blind = ~seen.any(-1, keepdim=True)
    isolating = is_two_sided(rule) and SameDocument() in members
    shape = "documents" if isolating else "mask"
    bounds = None
    if shape == "documents" and document is not None and document.is_cuda:
        bounds = document_bounds(document)
    real = None if document is None else document >= 0
    # Only where nothing is trained: a compiled step wants the same kind of view every time.
    if not torch.is_grad_enabled() and not blind.is_cuda and not bool(blind.any()):
        return View(shape, seen[:, None], None, bounds, order, real)
    return View(shape, (seen | blind)[:, None], blind[:, None], bounds, order, real)


def _order(members: "tuple[Visibility, ...]") -> Literal["all", "causal"] | None:
    """What rules that hold together come to, where it is one of the two plainest."""
    if not all(isinstance(rule, Bidirectional | BothWays | Causal) for rule in members):
        return None
    return "causal" if any(isinstance(rule, Causal) for rule in members) else "all"


WAYS: dict[type[Visibility], tuple[Way, ...]] = {
    Causal: ("forward",),
    Reversed: ("backward",),
    BothWays: ("forward", "backward"),
}


def ways(rule: Visibility) -> tuple[Way, ...]:
    """The ways in which a text is read under a rule, one for each part of a state; none where the
    rule is more than a way and the documents within which it goes."""
    members = [r for r in _members(rule, Both) if not isinstance(r, SameDocument)]
    return WAYS.get(type(members[0]), ()) if len(members) == 1 else ()


def is_read_on(rule: Visibility) -> bool:
    """Whether a place sees all that its neighbour sees, or begins anew: no more can be kept by what
    is read place by place."""
    plain = (Bidirectional, SameDocument, *WAYS)
    return all(isinstance(member, plain) for member in _members(rule, Both))


def is_empty(rule: Visibility) -> bool:
    """Whether a place sees nothing but itself."""
    kinds = {type(member) for member in _members(rule, Both)}
    return {Causal, Reversed} <= kinds


def is_by_halves(rule: Visibility) -> bool:
    """Whether the two halves of a state see differently."""
    return any(isinstance(member, BothWays) for member in _members(rule, Both))


def is_two_sided(rule: Visibility) -> bool:
    """Whether a place sees all of its document, what follows it too."""
    return all(isinstance(r, Bidirectional | SameDocument) for r in _members(rule, Both))


def document_bounds(document: Tensor) -> Tensor:
    """Where each run of one document starts in the flattened rows (B, L), then the end: int32.

    The end is repeated up to a power of two, so that a compiled step meets few lengths.
    """
    starts = torch.ones_like(document, dtype=torch.bool)
    starts[:, 1:] = document[:, 1:] != document[:, :-1]
    first = starts.flatten().nonzero().flatten().to(torch.int32)
    room = 1 << len(first).bit_length()
    return torch.nn.functional.pad(first, (0, room + 1 - len(first)), value=document.numel())


def _members(rule: Visibility, kind: "type[Both | Either]") -> tuple[Visibility, ...]:
    return rule.rules if isinstance(rule, kind) else (rule,)
