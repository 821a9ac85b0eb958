"""Adafactor: factored second moments, and steps relative to the magnitude of the weights.

Source: Shazeer and Stern 2018, algorithms 4 and 5, without momentum. There is no bias correction,
because the decay of the second moment is 1 - t^-0.8 at step t. The published relative steps,
min(1e-2, 1 / sqrt(t)), correspond to a learning rate of 1e-2 with an ``inverse-root`` schedule that
is constant for the first 10,000 steps.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.optimisers.adam import DECAY_GROUPS
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser, OptimiserConfig
from bertwright.runtime.compiled_functions import CompilableFunction


class AdafactorConfig(OptimiserConfig):
    """Adafactor: factored second moments for matrices, full second moments for vectors.

    The change of a tensor is clipped to a root mean square of ``clip_at``, then multiplied by
    ``learning_rate`` and by the root mean square of the tensor, or by ``least`` if that is larger.
    Matrices and tables decay by learning_rate x ``weight_decay``, as in AdamW. All matrices are
    factored; the published code leaves those with a side below 128 as they are.
    """

    kind: Literal["adafactor"] = "adafactor"
    learning_rate: float = Field(default=1e-2, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    power: float = Field(default=0.8, gt=0)
    epsilon: float = Field(default=1e-30, gt=0)
    least: float = Field(default=1e-3, gt=0)
    clip_at: float = Field(default=1.0, gt=0)

    def build(self, parameters: MasterParameters) -> "AdafactorOptimiser":
        return AdafactorOptimiser(self, parameters)


class AdafactorOptimiser(Optimiser):
    """Adafactor with row and column moments of matrices, moments of vectors, and the step number.

    A fused projection is split, so it has moments for each of its P parts.
    """

    def __init__(self, config: AdafactorConfig, parameters: MasterParameters) -> None:
        self._config, self._parameters = config, parameters
        self._num_steps = torch.zeros((), dtype=torch.int64)
        self._moments: dict[str, tuple[Tensor, ...]] = {}
        for slot in parameters.trained_slots("matrix", "table", "rest"):
            # The moments of a matrix are small, so every process has all of them.
            rows, *columns = slot.whole_shape
            shape = (slot.num_parts, rows // slot.num_parts, *columns)
            shapes = (shape[:-1], (*shape[:-2], shape[-1])) if columns else (shape,)
            self._moments[slot.name] = tuple(
                torch.zeros(shape, device=parameters.master.device) for shape in shapes
            )
        self._decay_names = {slot.name for slot in parameters.trained_slots(*DECAY_GROUPS)}
        self._factored_step, self._unfactored_step = (
            CompilableFunction(factored_step),
            CompilableFunction(unfactored_step),
        )

    @torch.no_grad()
    def step(self, gradient: Tensor, lr_factor: float, clip_factor: Tensor) -> None:
        self._num_steps += 1
        settings, parameters = self._config, self._parameters
        update_rate = int(self._num_steps) ** -settings.power
        for slot in parameters.trained_slots("matrix", "table", "rest"):
            scaled = (
                settings.learning_rate
                * lr_factor
                * parameters.learning_rate_factor(slot, settings.layer_decay)
            )
            shrink = scaled * settings.weight_decay if slot.name in self._decay_names else 0.0
            scalars = (
                update_rate,
                scaled,
                shrink,
                settings.epsilon,
                settings.least,
                settings.clip_at,
            )
            moments = self._moments[slot.name]
            update = self._factored_step if len(moments) == 2 else self._unfactored_step
            with parameters.whole_tensors(slot, parameters.master, gradient) as tensors:
                weight, change = (split_parts(tensor, slot.num_parts) for tensor in tensors)
                update(
                    weight,
                    change,
                    moments,
                    torch.tensor(scalars, device=gradient.device),
                    clip_factor,
                )
        for elements, _ in parameters.trained_ranges(slice(0, parameters.num_trainable)):
            parameters.refresh_compute(elements)

    def state_dict(self) -> dict[str, Tensor]:
        named = {"num_steps": self._num_steps}
        for name, moments in self._moments.items():
            kinds = ("rows", "columns") if len(moments) == 2 else ("second",)
            for kind, moment in zip(kinds, moments, strict=True):
                named[f"{kind}.{name}"] = moment
        return named


def split_parts(tensor: Tensor, num_parts: int) -> Tensor:
    """Return the parts of a parameter, stacked: (P, rows / P, columns) or (P, n)."""
    return tensor.view(num_parts, len(tensor) // num_parts, *tensor.shape[1:])


def factored_step(
    weight: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, ...],
    scalars: Tensor,
    clip_factor: Tensor,
) -> None:
    """Update matrices (P, r, c) in place, with moments (P, r) and (P, c) (algorithm 4)."""
    rows, columns = moments
    clipped = gradient.float() * clip_factor
    squared = clipped.square() + scalars[3]
    rows.lerp_(squared.mean(-1), scalars[0])
    columns.lerp_(squared.mean(-2), scalars[0])
    row_factors = rows / rows.mean(-1, keepdim=True)
    change = clipped * row_factors.rsqrt()[..., None] * columns.rsqrt()[..., None, :]
    _apply_change(weight, change, scalars)


def unfactored_step(
    weight: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, ...],
    scalars: Tensor,
    clip_factor: Tensor,
) -> None:
    """Update vectors (P, n) in place, with moments (P, n) (algorithm 5)."""
    (second,) = moments
    clipped = gradient.float() * clip_factor
    second.lerp_(clipped.square() + scalars[3], scalars[0])
    _apply_change(weight, clipped * second.rsqrt(), scalars)


def _apply_change(weight: Tensor, change: Tensor, scalars: Tensor) -> None:
    _, rate, shrink, _, least, clip_at = scalars.unbind()
    change = change / (_rms(change) / clip_at).clamp(min=1.0)
    relative = rate * torch.maximum(_rms(weight), least)
    weight.copy_(weight * (1 - shrink) - relative * change)


def _rms(x: Tensor) -> Tensor:
    """Return the root mean square of each of P tensors, keeping dimensions."""
    return x.square().mean(dim=tuple(range(1, x.ndim)), keepdim=True).sqrt()
