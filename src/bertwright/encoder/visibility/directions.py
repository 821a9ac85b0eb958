"""To which sides of itself a place sees under a rule, whatever the batch."""

from typing import Literal

from bertwright.encoder.visibility.rules import (
    Bidirectional,
    Both,
    BothWays,
    Causal,
    Either,
    Reversed,
    SameDocument,
    Visibility,
    members,
)

Way = Literal["forward", "backward"]

WAYS: dict[type[Visibility], tuple[Way, ...]] = {
    Causal: ("forward",),
    Reversed: ("backward",),
    BothWays: ("forward", "backward"),
}


def ways(rule: Visibility) -> tuple[Way, ...]:
    """The ways in which a text is read under a rule, one for each part of a state; none where the
    rule is more than a way and the documents within which it goes."""
    several = [r for r in members(rule, Both) if not isinstance(r, SameDocument)]
    return WAYS.get(type(several[0]), ()) if len(several) == 1 else ()


def is_read_on(rule: Visibility) -> bool:
    """Whether a place sees all that its neighbour sees, or begins anew: no more can be kept by what
    is read place by place."""
    plain = (Bidirectional, SameDocument, *WAYS)
    return all(isinstance(member, plain) for member in members(rule, Both))


def is_empty(rule: Visibility) -> bool:
    """Whether a place sees nothing but itself."""
    kinds = {type(member) for member in members(rule, Both)}
    return {Causal, Reversed} <= kinds


def is_causal(rule: Visibility) -> bool:
    """Whether a place sees nothing of what follows it."""
    return any(isinstance(member, Causal) for member in members(rule, Both))


def is_by_halves(rule: Visibility) -> bool:
    """Whether the two halves of a state see differently."""
    if isinstance(rule, Both | Either):
        return any(is_by_halves(member) for member in rule.rules)
    return isinstance(rule, BothWays)


def is_two_sided(rule: Visibility) -> bool:
    """Whether a place sees all of its document, what follows it too."""
    return all(isinstance(r, Bidirectional | SameDocument) for r in members(rule, Both))
