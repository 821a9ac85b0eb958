"""Heads that look where they are told, in any model with attention weights."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor

from bertwright.analysis.subject import Subject

Pointer = Literal["opening", "end", "self", "previous", "next", "even"]

Heads = Mapping[int, Sequence[Pointer]]
"""What each head of a layer looks at."""

_ALIKE: Sequence[Pointer] = ("even",) * 4

EVEN: Heads = {0: _ALIKE, 1: _ALIKE}
"""Those of the small model that look everywhere alike."""


@contextmanager
def pointing(subject: Subject, heads: Heads) -> Generator[None]:
    """Let all heads of these layers look where they are told while the context is open: at the
    first place or the last, at themselves or beside it (at itself, who has no such neighbour), or
    everywhere alike."""
    with ExitStack() as stack:
        for layer, pointers in heads.items():
            name = f"blocks.{layer}.attention.weights"
            stack.enter_context(
                subject.encoder.replace(name, lambda weights, own=pointers: pointed(weights, own))
            )
        yield


def pointed(weights: Tensor, pointers: Sequence[Pointer]) -> Tensor:
    """Other weights for attention (B, H, L, L), whose hidden places have none."""
    seen = weights > 0
    found = [_pointed(seen[:, head], pointer) for head, pointer in enumerate(pointers)]
    return torch.stack(found, 1).to(weights.dtype)


def _pointed(seen: Tensor, pointer: Pointer) -> Tensor:
    """seen (B, L, L) bool to weights."""
    if pointer == "even":
        return seen / seen.sum(-1, keepdim=True)
    itself = torch.eye(seen.shape[-1], dtype=torch.bool, device=seen.device) & seen
    last = seen.sum(-1, keepdim=True) == torch.arange(1, seen.shape[-1] + 1, device=seen.device)
    wanted = {
        "opening": seen & (torch.arange(seen.shape[-1], device=seen.device) == 0),
        "end": seen & last,
        "self": itself,
        "previous": seen & itself.roll(-1, -1) & ~_wrapped(itself, -1),
        "next": seen & itself.roll(1, -1) & ~_wrapped(itself, 1),
    }[pointer]
    return torch.where(wanted.any(-1, keepdim=True), wanted, itself).double()


def _wrapped(itself: Tensor, by: int) -> Tensor:
    """Where a diagonal that is moved comes in again on the other side."""
    wrapped = torch.zeros_like(itself)
    wrapped[..., 0 if by > 0 else -1] = True
    return wrapped
