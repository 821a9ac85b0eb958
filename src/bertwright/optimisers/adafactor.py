"""Adafactor: second moments as a row and a column, steps relative to the size of the weights.

Source: Shazeer and Stern 2018, algorithms 4 and 5, without momentum. It has no bias to correct: the
decay of the second moment is 1 - t^-0.8 at step t. The published relative steps, min(1e-2,
1 / sqrt(t)), are a rate of 1e-2 under a schedule of kind ``inverse-root`` that stays for 10,000
steps what it is at first.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.machine.compiled import Compilable
from bertwright.optimisers.adam import DECAYED
from bertwright.optimisers.optimiser import Optimiser, Update
from bertwright.optimisers.parameters import MasterParameters, Slot


class Adafactor(Optimiser):
    """A matrix remembers one second moment for each row and each column; a vector all of its own.

    A step moves a tensor by ``rate`` times its root mean square, at least ``least``, and by
    ``clip_at`` times that at most. Each step also shrinks matrices and tables by rate x ``decay``,
    as under AdamW.
    """

    kind: Literal["adafactor"] = "adafactor"
    rate: float = Field(default=1e-2, gt=0)
    decay: float = Field(default=0.0, ge=0)
    power: float = Field(default=0.8, gt=0)
    epsilon: float = Field(default=1e-30, gt=0)
    least: float = Field(default=1e-3, gt=0)
    clip_at: float = Field(default=1.0, gt=0)

    def build(self, parameters: MasterParameters) -> "AdafactorUpdate":
        return AdafactorUpdate(self, parameters)


class AdafactorUpdate(Update):
    """Row and column moments of every matrix, moments of every vector, and the number of steps.

    The tensors are the canonical ones: a fused projection has moments for each of its parts, P of
    them in a slot.
    """

    def __init__(self, settings: Adafactor, parameters: MasterParameters) -> None:
        self._settings, self._parameters = settings, parameters
        self._num_steps = torch.zeros((), dtype=torch.int64)
        self._moments: dict[str, tuple[Tensor, ...]] = {}
        for slot in parameters.slots_of("matrix", "table", "rest"):
            view = in_parts(parameters.master, slot)
            like = (view[..., 0], view[..., 0, :]) if view.ndim > 2 else (view,)
            self._moments[slot.name] = tuple(torch.zeros_like(each) for each in like)
        self._decayed = {slot.name for slot in parameters.slots_of(*DECAYED)}
        self._factored, self._whole = Compilable(factored), Compilable(whole)

    def compilables(self) -> Sequence[Compilable[..., None]]:
        return (self._factored, self._whole)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float, clip: Tensor) -> None:
        self._num_steps += 1
        settings, parameters = self._settings, self._parameters
        new = int(self._num_steps) ** -settings.power
        for slot in parameters.slots_of("matrix", "table", "rest"):
            scaled = settings.rate * rate * parameters.factor(slot, settings.layer_decay)
            shrink = scaled * settings.decay if slot.name in self._decayed else 0.0
            numbers = (new, scaled, shrink, settings.epsilon, settings.least, settings.clip_at)
            moments = self._moments[slot.name]
            update = self._factored if len(moments) == 2 else self._whole
            update(
                in_parts(parameters.master, slot),
                in_parts(gradient, slot),
                moments,
                torch.tensor(numbers, device=gradient.device),
                clip,
            )
        for where, _ in parameters.trained(slice(0, parameters.num_trainable)):
            parameters.refresh(where)

    def state(self) -> dict[str, Tensor]:
        named = {"num_steps": self._num_steps}
        for name, moments in self._moments.items():
            kinds = ("rows", "columns") if len(moments) == 2 else ("second",)
            for kind, moment in zip(kinds, moments, strict=True):
                named[f"{kind}.{name}"] = moment
        return named


def in_parts(flat: Tensor, slot: Slot) -> Tensor:
    """The canonical tensors of a slot, one above the other: (P, rows / P, columns) or (P, n)."""
    rows, *columns = slot.shape
    return flat[slot.start : slot.stop].view(slot.parts, rows // slot.parts, *columns)


def factored(
    weight: Tensor, gradient: Tensor, moments: tuple[Tensor, ...], numbers: Tensor, clip: Tensor
) -> None:
    """One step of matrices (P, r, c) in place, with moments (P, r) and (P, c) (algorithm 4)."""
    rows, columns = moments
    clipped = gradient.float() * clip
    squared = clipped.square() + numbers[3]
    rows.lerp_(squared.mean(-1), numbers[0])
    columns.lerp_(squared.mean(-2), numbers[0])
    shares = rows / rows.mean(-1, keepdim=True)
    change = clipped * shares.rsqrt()[..., None] * columns.rsqrt()[..., None, :]
    _move(weight, change, numbers)


def whole(
    weight: Tensor, gradient: Tensor, moments: tuple[Tensor, ...], numbers: Tensor, clip: Tensor
) -> None:
    """One step of vectors (P, n) in place, with moments (P, n) (algorithm 5)."""
    (second,) = moments
    clipped = gradient.float() * clip
    second.lerp_(clipped.square() + numbers[3], numbers[0])
    _move(weight, clipped * second.rsqrt(), numbers)


def _move(weight: Tensor, change: Tensor, numbers: Tensor) -> None:
    _, rate, shrink, _, least, clip_at = numbers.unbind()
    change = change / (_size(change) / clip_at).clamp(min=1.0)
    relative = rate * torch.maximum(_size(weight), least)
    weight.copy_(weight * (1 - shrink) - relative * change)


def _size(x: Tensor) -> Tensor:
    """The root mean square of each of P tensors, broadcast to them."""
    return x.square().mean(dim=tuple(range(1, x.ndim)), keepdim=True).sqrt()
