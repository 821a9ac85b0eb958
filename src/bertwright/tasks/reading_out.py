"""Where a head reads a row, by name.

``first`` is the first place, ``last`` the last one that is real (where a causal encoder has read
everything), ``mean`` the mean over the real places, ``last-max-mean`` these three numbers of each
state side by side, with the highest in the middle (Howard and Ruder 2018, section 3.3), ``places``
the places that are asked: the first piece of every word, or every piece of a text.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

ReadOut = Literal["first", "last", "mean", "last-max-mean", "places"]


def read_first(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the first place of every row."""
    return states[:, 0]


def read_last(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the last place of every row that is not padding."""
    if document is None:
        return states[:, -1]
    place = torch.arange(states.shape[1], device=states.device)
    last = torch.where(document >= 0, place, 0).amax(1)
    return states[torch.arange(len(states), device=states.device), last]


def read_mean(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, D): the mean over the places that are not padding."""
    if document is None:
        return states.mean(1)
    real = (document >= 0).to(states.dtype)
    return torch.einsum("bld,bl->bd", states, real / real.sum(1, keepdim=True))


def read_last_max_mean(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (B, 3 D)."""
    seen = states
    if document is not None:
        seen = states.masked_fill((document < 0)[..., None], torch.finfo(states.dtype).min)
    last, mean = (read(states, document, where) for read in (read_last, read_mean))
    return torch.cat((last, seen.amax(1), mean), dim=-1)


def read_places(states: Tensor, document: Tensor | None, where: Tensor | None) -> Tensor:
    """states (B, L, D) to (M, D): the flat places ``where`` (M,)."""
    assert where is not None, "a head that reads places is told which"
    return states.flatten(0, 1).index_select(0, where)


READ: dict[ReadOut, Callable[[Tensor, Tensor | None, Tensor | None], Tensor]] = {
    "first": read_first,
    "last": read_last,
    "mean": read_mean,
    "last-max-mean": read_last_max_mean,
    "places": read_places,
}

SIDE_BY_SIDE: dict[ReadOut, int] = {"last-max-mean": 3}
"""How many numbers of each state are read."""
