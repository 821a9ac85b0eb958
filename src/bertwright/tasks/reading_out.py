"""Where a head reads a row, by name.

``first`` is the first place, ``last`` the last one that is real (where a causal encoder has read
everything), ``mean`` the mean over the real places, ``last-max-mean`` these three numbers of each
state side by side, with the highest in the middle (Howard and Ruder 2018, section 3.3), ``apart``
the means of two texts, neither of which has seen the other, with their distance and their product
(Conneau et al. 2017, section 3.1), ``places`` the places that are asked: the first piece of every
word, or every piece of a text.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

ReadOut = Literal["first", "last", "mean", "last-max-mean", "apart", "places"]


def read_places(
    read: ReadOut, pieces: Tensor, document: Tensor | None, where: Tensor | None
) -> Tensor | None:
    """The flat places (M,) of pieces (B, L) whose states alone are read; None where what is read is
    made of whole rows."""
    rows, length = pieces.shape
    start = torch.arange(rows, device=pieces.device) * length
    match read:
        case "first":
            return start
        case "last":
            return start + (length - 1 if document is None else last_real(document))
        case "places":
            assert where is not None, "a head that reads places is told which"
            return where
        case _:
            return None


def last_real(document: Tensor) -> Tensor:
    """The last place (B,) of every row that is not padding, of documents (B, L)."""
    place = torch.arange(document.shape[1], device=document.device)
    return torch.where(document >= 0, place, 0).amax(1)


def read_mean(states: Tensor, document: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the mean over the places that are not padding."""
    if document is None:
        return states.mean(1)
    real = (document >= 0).to(states.dtype)
    return torch.einsum("bld,bl->bd", states, real / real.sum(1, keepdim=True))


def read_last_max_mean(states: Tensor, document: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, 3 D)."""
    if document is None:
        document = torch.zeros_like(states[..., 0])
    seen = states.masked_fill((document < 0)[..., None], torch.finfo(states.dtype).min)
    last = states[torch.arange(states.shape[0], device=states.device), last_real(document)]
    return torch.cat((last, seen.amax(1), read_mean(states, document)), dim=-1)


def read_apart(states: Tensor, document: Tensor | None) -> Tensor:
    """states (B, L, D) of rows of two documents to (B, 4 D)."""
    assert document is not None, "rows of texts that are read apart say which place is of which"
    first, second = (read_mean(states, torch.where(document == number, 0, -1)) for number in (0, 1))
    return torch.cat((first, second, (first - second).abs(), first * second), dim=-1)


READ_ROWS: dict[ReadOut, Callable[[Tensor, Tensor | None], Tensor]] = {
    "mean": read_mean,
    "last-max-mean": read_last_max_mean,
    "apart": read_apart,
}
"""What is made of whole rows."""

SIDE_BY_SIDE: dict[ReadOut, int] = {"last-max-mean": 3, "apart": 4}
"""How many numbers of each state are read."""
