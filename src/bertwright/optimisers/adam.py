"""Adam, with decoupled weight decay (AdamW) or with an L2 term in the gradient.

Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019. BERT's published optimiser is AdamW without
bias correction (Devlin et al. 2019, the released code). Matrices and tables decay; biases, norms
and gates do not.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from bertwright.machine.compiled import Compilable
from bertwright.optimisers.optimiser import Optimiser, Update
from bertwright.optimisers.parameters import MasterParameters

DECAYED = ("matrix", "table")

PIECE = 1 << 18
"""Elements of an eager pass."""


class Stretch(NamedTuple):
    """What one pass of Adam reads and writes: the same range of several flat buffers, (n,) each.

    ``compute`` is None where the model computes with the master itself.
    """

    master: Tensor
    compute: Tensor | None
    gradient: Tensor
    first: Tensor
    second: Tensor

    def part(self, of: slice) -> "Stretch":
        """A shorter stretch of the same buffers."""
        return Stretch(
            self.master[of],
            None if self.compute is None else self.compute[of],
            self.gradient[of],
            self.first[of],
            self.second[of],
        )


StretchUpdate = Callable[[Stretch, Tensor, Tensor], None]
"""One step over a stretch in place, told the scalars (7,) and the factor that clips: ()."""


class AdamFamily(Optimiser):
    """The settings that the kinds of Adam share."""

    rate: float = Field(default=1e-3, gt=0)
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    decay: float = Field(default=0.01, ge=0)
    bias_correction: bool = True


class AdamW(AdamFamily):
    """Adam with decoupled weight decay: each step also shrinks the weights by rate x decay."""

    kind: Literal["adamw"] = "adamw"

    def build(self, parameters: MasterParameters) -> "AdamUpdate":
        return AdamUpdate(self, parameters, DECAYED, decoupled_update)


class Adam(AdamFamily):
    """Adam with L2 regularisation: decay x weight is part of the gradient, before the moments."""

    kind: Literal["adam"] = "adam"

    def build(self, parameters: MasterParameters) -> "AdamUpdate":
        return AdamUpdate(self, parameters, DECAYED, l2_update)


class AdamUpdate(Update):
    """Adam over the ``decayed`` groups of the parameters, and over the rest without decay.

    Its state is two moments per parameter and the number of steps; one fused pass over a range
    reads and writes each value once.
    """

    def __init__(
        self,
        settings: AdamFamily,
        parameters: MasterParameters,
        decayed: tuple[str, ...],
        update: StretchUpdate,
    ) -> None:
        self._settings = settings
        self._parameters = parameters
        self._ranges = (
            (parameters.range(*decayed), settings.decay),
            (parameters.range("rest"), 0.0),
        )
        self._offset = self._ranges[0][0].start
        length = self._ranges[1][0].stop - self._offset
        device = parameters.master.device
        self._moments = [torch.zeros(length, device=device) for _ in range(2)]
        self._num_steps = torch.zeros((), dtype=torch.int64)
        # For any length: one kernel serves every range of every model.
        plain = in_pieces(FUSED[update]) if device.type == "cpu" else update
        self._update = Compilable(update, plain)

    def compilables(self) -> Sequence[Compilable[..., None]]:
        return (self._update,)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float, clip: Tensor) -> None:
        self._num_steps += 1
        parameters = self._parameters
        for group, decay in self._ranges:
            for where, factor in parameters.trained(group, self._settings.layer_decay):
                self._step_in(where, gradient, self._scalars(rate * factor, decay), clip)

    def _step_in(self, where: slice, gradient: Tensor, scalars: Tensor, clip: Tensor) -> None:
        parameters = self._parameters
        within = slice(where.start - self._offset, where.stop - self._offset)
        first, second = (moment[within] for moment in self._moments)
        stretch = Stretch(
            parameters.master[where],
            parameters.compute[where] if parameters.precision == "bf16" else None,
            gradient[where],
            first,
            second,
        )
        self._update(stretch, scalars, clip)

    def state(self) -> dict[str, Tensor]:
        return {**self._named_moments(), "num_steps": self._num_steps}

    def _named_moments(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for slot in self._parameters.slots:
            start, stop = slot.start - self._offset, slot.stop - self._offset
            if start >= 0 and stop <= len(self._moments[0]):
                for name, moment in zip(("first", "second"), self._moments, strict=True):
                    named[f"{name}.{slot.name}"] = moment[start:stop].view(slot.shape)
        return named

    def _scalars(self, rate: float, decay: float) -> Tensor:
        settings, steps = self._settings, int(self._num_steps)
        correction_1 = 1 - settings.beta_1**steps if settings.bias_correction else 1.0
        correction_2 = 1 - settings.beta_2**steps if settings.bias_correction else 1.0
        return torch.tensor(
            (
                settings.rate * rate,
                1 - settings.beta_1,
                1 - settings.beta_2,
                1 / correction_1,
                1 / correction_2,
                settings.epsilon,
                decay,
            ),
            device=self._parameters.master.device,
        )


def in_pieces(update: StretchUpdate) -> StretchUpdate:
    """The same update piece by piece: eager passes that stay in the cache take half the time."""

    def pieces(stretch: Stretch, scalars: Tensor, clip: Tensor) -> None:
        for start in range(0, len(stretch.master), PIECE):
            update(stretch.part(slice(start, start + PIECE)), scalars, clip)

    return pieces


def decoupled_update(stretch: Stretch, scalars: Tensor, clip: Tensor) -> None:
    """One step of AdamW, in place; refreshes ``compute`` where there is one."""
    change = _change(stretch, stretch.gradient.float() * clip, scalars)
    _apply(stretch, change + scalars[6] * stretch.master, scalars)


def l2_update(stretch: Stretch, scalars: Tensor, clip: Tensor) -> None:
    """One step of Adam with L2, in place."""
    gradient = stretch.gradient.float() * clip + scalars[6] * stretch.master
    _apply(stretch, _change(stretch, gradient, scalars), scalars)


def fused_decoupled_update(stretch: Stretch, scalars: Tensor, clip: Tensor) -> None:
    """As :func:`decoupled_update`, in the one pass that PyTorch has for it."""
    _fused(torch.ops.aten._fused_adamw_, stretch, scalars, clip)


def fused_l2_update(stretch: Stretch, scalars: Tensor, clip: Tensor) -> None:
    """As :func:`l2_update`, in the one pass that PyTorch has for it."""
    _fused(torch.ops.aten._fused_adam_, stretch, scalars, clip)


FUSED: dict[StretchUpdate, StretchUpdate] = {
    decoupled_update: fused_decoupled_update,
    l2_update: fused_l2_update,
}
"""What is faster than the definition where nothing is compiled: by three on a CPU."""


def _fused(operator: Any, stretch: Stretch, scalars: Tensor, clip: Tensor) -> None:
    """PyTorch's fused pass, told of a step so late that it corrects no bias: ours is in the rate.

    c1 m / (sqrt(c2 v) + e) = (c1 / sqrt(c2)) m / (sqrt(v) + e / sqrt(c2)).
    """
    rate, new_1, new_2, correct_1, correct_2, epsilon, decay = scalars.tolist()
    scale = correct_1 / correct_2**0.5
    operator(
        [stretch.master],
        [stretch.gradient.float() * clip],
        [stretch.first],
        [stretch.second],
        [],
        [torch.tensor(1e9)],
        lr=rate * scale,
        beta1=1 - new_1,
        beta2=1 - new_2,
        weight_decay=decay / scale if operator is torch.ops.aten._fused_adamw_ else decay,
        eps=epsilon / correct_2**0.5,
        amsgrad=False,
        maximize=False,
    )
    if stretch.compute is not None:
        stretch.compute.copy_(stretch.master)


def _change(stretch: Stretch, gradient: Tensor, scalars: Tensor) -> Tensor:
    _, new_1, new_2, correct_1, correct_2, epsilon, _ = scalars.unbind()
    first = stretch.first + new_1 * (gradient - stretch.first)
    second = stretch.second + new_2 * (gradient * gradient - stretch.second)
    stretch.first.copy_(first)
    stretch.second.copy_(second)
    return first * correct_1 / ((second * correct_2).sqrt() + epsilon)


def _apply(stretch: Stretch, change: Tensor, scalars: Tensor) -> None:
    updated = stretch.master - scalars[0] * change
    stretch.master.copy_(updated)
    if stretch.compute is not None:
        stretch.compute.copy_(updated)
