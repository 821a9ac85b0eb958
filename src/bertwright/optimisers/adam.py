"""Adam, with decoupled weight decay (AdamW) or with an L2 term in the gradient.

Sources: Kingma and Ba 2015; Loshchilov and Hutter 2019. BERT uses AdamW without bias correction
(released code of Devlin et al. 2019). Matrices and tables have weight decay; biases, norms and
gates do not.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser, OptimiserConfig
from bertwright.runtime.compiled_functions import CompilableFunction

DECAY_GROUPS = ("matrix", "table")

CHUNK_SIZE = 1 << 18
"""Number of elements that an eager pass updates at once."""


class BufferSlice(NamedTuple):
    """The same range of all buffers of Adam, (n,) each.

    ``compute`` is None if the model computes with the master parameters.
    """

    master: Tensor
    compute: Tensor | None
    gradient: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor

    def slice(self, elements: slice) -> "BufferSlice":
        """Return a sub-range of the same buffers."""
        return self._make(None if buffer is None else buffer[elements] for buffer in self)


AdamStep = Callable[[BufferSlice, Tensor, Tensor], None]
"""Function that updates a range in place, given scalars (7,) and a 0-d clip factor."""


class AdamFamilyConfig(OptimiserConfig):
    """Settings of all variants of Adam."""

    learning_rate: float = Field(default=1e-3, gt=0)
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    bias_correction: bool = True


class AdamWConfig(AdamFamilyConfig):
    """AdamW, with decoupled weight decay: weights also shrink by learning_rate x weight_decay."""

    kind: Literal["adamw"] = "adamw"

    def build(self, parameters: MasterParameters) -> "AdamOptimiser":
        return AdamOptimiser(self, parameters, DECAY_GROUPS, adamw_step)


class AdamConfig(AdamFamilyConfig):
    """Adam with L2 regularisation: weight_decay x weight is added to the gradient."""

    kind: Literal["adam"] = "adam"

    def build(self, parameters: MasterParameters) -> "AdamOptimiser":
        return AdamOptimiser(self, parameters, DECAY_GROUPS, adam_l2_step)


class AdamOptimiser(Optimiser):
    """Adam with weight decay for the ``decay_groups`` of parameters and without for the others.

    The state is two moments per parameter and the step number. One fused pass over a range reads
    and writes each value once.
    """

    def __init__(
        self,
        config: AdamFamilyConfig,
        parameters: MasterParameters,
        decay_groups: tuple[str, ...],
        step_function: AdamStep,
    ) -> None:
        self._config = config
        self._parameters = parameters
        self._ranges = (
            (parameters.range(*decay_groups), config.weight_decay),
            (parameters.range("rest"), 0.0),
        )
        self._offset = self._ranges[0][0].start
        length = self._ranges[1][0].stop - self._offset
        device = parameters.master.device
        self._moments = [torch.zeros(length, device=device) for _ in range(2)]
        self._num_steps = torch.zeros((), dtype=torch.int64)
        # Compiled for any length, so one kernel serves every range of every model.
        plain = in_chunks(FUSED_STEPS[step_function]) if device.type == "cpu" else step_function
        self._step_function = CompilableFunction(step_function, plain)

    @torch.no_grad()
    def step(self, gradient: Tensor, lr_factor: float, clip_factor: Tensor) -> None:
        self._num_steps += 1
        parameters = self._parameters
        for group, decay in self._ranges:
            for elements, factor in parameters.trained_ranges(group, self._config.layer_decay):
                self._step_slice(
                    elements, gradient, self._scalars(lr_factor * factor, decay), clip_factor
                )

    def _step_slice(self, elements: slice, gradient: Tensor, scalars: Tensor, clip: Tensor) -> None:
        parameters = self._parameters
        state_range = slice(elements.start - self._offset, elements.stop - self._offset)
        first, second = (moment[state_range] for moment in self._moments)
        buffers = BufferSlice(
            parameters.master[elements],
            parameters.compute_slice(elements),
            gradient[elements],
            first,
            second,
        )
        self._step_function(buffers, scalars, clip)

    def state_dict(self) -> dict[str, Tensor]:
        moments = {"first": self._moments[0], "second": self._moments[1]}
        views = self._parameters.state_views(moments, self._offset)
        return {**views, "num_steps": self._num_steps}

    def _scalars(self, lr_factor: float, weight_decay: float) -> Tensor:
        settings, steps = self._config, int(self._num_steps)
        correction_1 = 1 - settings.beta_1**steps if settings.bias_correction else 1.0
        correction_2 = 1 - settings.beta_2**steps if settings.bias_correction else 1.0
        return torch.tensor(
            (
                settings.learning_rate * lr_factor,
                1 - settings.beta_1,
                1 - settings.beta_2,
                1 / correction_1,
                1 / correction_2,
                settings.epsilon,
                weight_decay,
            ),
            device=self._parameters.master.device,
        )


def in_chunks(step_function: AdamStep) -> AdamStep:
    """Return the update in chunks, as eager passes within the cache take half the time."""

    def chunked_step(buffers: BufferSlice, scalars: Tensor, clip: Tensor) -> None:
        for start in range(0, len(buffers.master), CHUNK_SIZE):
            step_function(buffers.slice(slice(start, start + CHUNK_SIZE)), scalars, clip)

    return chunked_step


def adamw_step(buffers: BufferSlice, scalars: Tensor, clip_factor: Tensor) -> None:
    """Update with AdamW in place; also refresh ``compute`` if it is not None."""
    change = _adam_change(buffers, buffers.gradient.float() * clip_factor, scalars)
    _apply_change(buffers, change + scalars[6] * buffers.master, scalars)


def adam_l2_step(buffers: BufferSlice, scalars: Tensor, clip_factor: Tensor) -> None:
    """Update with Adam and L2 regularisation in place."""
    gradient = buffers.gradient.float() * clip_factor + scalars[6] * buffers.master
    _apply_change(buffers, _adam_change(buffers, gradient, scalars), scalars)


def _call_fused_adam(
    operator: Any, buffers: BufferSlice, scalars: Tensor, clip_factor: Tensor
) -> None:
    """Call PyTorch's fused kernel with a step so large that its bias correction vanishes.

    The bias correction is part of the learning rate and epsilon instead:
    c1 m / (sqrt(c2 v) + e) = (c1 / sqrt(c2)) m / (sqrt(v) + e / sqrt(c2)).
    """
    rate, new_1, new_2, correct_1, correct_2, epsilon, decay = scalars.tolist()
    scale = correct_1 / correct_2**0.5
    operator(
        [buffers.master],
        [buffers.gradient.float() * clip_factor],
        [buffers.exp_avg],
        [buffers.exp_avg_sq],
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
    if buffers.compute is not None:
        buffers.compute.copy_(buffers.master)


FUSED_STEPS: dict[AdamStep, AdamStep] = {
    adamw_step: partial(_call_fused_adam, torch.ops.aten._fused_adamw_),
    adam_l2_step: partial(_call_fused_adam, torch.ops.aten._fused_adam_),
}
"""Eager alternative to the definition, three times as fast on a CPU."""


def _adam_change(buffers: BufferSlice, gradient: Tensor, scalars: Tensor) -> Tensor:
    _, new_1, new_2, correct_1, correct_2, epsilon, _ = scalars.unbind()
    first = buffers.exp_avg + new_1 * (gradient - buffers.exp_avg)
    second = buffers.exp_avg_sq + new_2 * (gradient * gradient - buffers.exp_avg_sq)
    buffers.exp_avg.copy_(first)
    buffers.exp_avg_sq.copy_(second)
    return first * correct_1 / ((second * correct_2).sqrt() + epsilon)


def _apply_change(buffers: BufferSlice, change: Tensor, scalars: Tensor) -> None:
    updated = buffers.master - scalars[0] * change
    buffers.master.copy_(updated)
    if buffers.compute is not None:
        buffers.compute.copy_(updated)
