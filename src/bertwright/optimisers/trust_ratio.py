"""Adam with steps scaled for each tensor: LAMB and StableAdamW.

A fused projection is first split into separate tensors.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.optimisers.adam import AdamFamilyConfig
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.optimiser import Optimiser
from bertwright.runtime.compiled_functions import CompilableFunction


class TrustRatioConfig(AdamFamilyConfig):
    """A base class of Adam variants that scale the change of each tensor."""

    def build(self, parameters: MasterParameters) -> "TrustRatioOptimiser":
        return TrustRatioOptimiser(self, parameters)

    def change_scale(
        self, weight: Tensor, change: Tensor, gradient: Tensor, exp_avg_sq: Tensor
    ) -> Tensor:
        """Return the scale (0-d) of the change of one tensor."""
        raise TypeError(f"{type(self).__name__} is a base class, not an optimiser")


class LambConfig(TrustRatioConfig):
    """LAMB: every matrix moves by a fraction of its norm (You et al. 2020); ALBERT.

    Biases, norms and gates move as in AdamW.
    """

    kind: Literal["lamb"] = "lamb"
    epsilon: float = Field(default=1e-6, gt=0)
    bias_correction: bool = False

    def change_scale(
        self, weight: Tensor, change: Tensor, gradient: Tensor, exp_avg_sq: Tensor
    ) -> Tensor:
        if weight.ndim < 2:
            return torch.ones((), device=weight.device)
        size, step = torch.linalg.vector_norm(weight), torch.linalg.vector_norm(change)
        return torch.where((size > 0) & (step > 0), size / step, 1.0)


class StableAdamWConfig(TrustRatioConfig):
    """AdamW with smaller steps where the second moment lags behind (Wortsman et al. 2023, 3.3).

    The step is divided by the root mean square of gradient / sqrt(second moment), if above 1.
    """

    kind: Literal["stable-adamw"] = "stable-adamw"

    def change_scale(
        self, weight: Tensor, change: Tensor, gradient: Tensor, exp_avg_sq: Tensor
    ) -> Tensor:
        floor = self.epsilon**2
        ratio = (gradient.square() / exp_avg_sq.clamp(min=floor)).mean().sqrt()
        return 1.0 / ratio.clamp(min=1.0)


class TrustRatioOptimiser(Optimiser):
    """An optimiser with two moments per parameter, the step number, and the current change."""

    def __init__(self, config: TrustRatioConfig, parameters: MasterParameters) -> None:
        self._config, self._parameters = config, parameters
        length, device = parameters.num_trainable, parameters.master.device
        self._exp_avg, self._exp_avg_sq, self._change, self._gradient = (
            torch.zeros(length, device=device) for _ in range(4)
        )
        self._num_steps = torch.zeros((), dtype=torch.int64)
        self._weight_decay = torch.zeros(length, device=device)
        self._weight_decay[parameters.range("matrix", "table")] = config.weight_decay
        self._propose_change = CompilableFunction(propose_change)

    @torch.no_grad()
    def step(self, gradient: Tensor, lr_factor: float, clip_factor: Tensor) -> None:
        self._num_steps += 1
        settings, parameters = self._config, self._parameters
        steps = int(self._num_steps) if settings.bias_correction else 1 << 40
        correct_1, correct_2 = 1 - settings.beta_1**steps, 1 - settings.beta_2**steps
        scalars = (1 - settings.beta_1, 1 - settings.beta_2, correct_1, correct_2, settings.epsilon)
        constants = torch.tensor(scalars, device=gradient.device)
        trained = parameters.trained_ranges(
            slice(0, parameters.num_trainable), settings.layer_decay
        )
        for elements, _ in trained:
            self._propose_change(
                (
                    self._change[elements],
                    self._gradient[elements],
                    self._exp_avg[elements],
                    self._exp_avg_sq[elements],
                ),
                parameters.master[elements],
                gradient[elements],
                self._weight_decay[elements],
                constants,
                clip_factor,
            )
        for slot in parameters.trained_slots("matrix", "table", "rest"):
            buffers = (parameters.master, self._change, self._gradient, self._exp_avg_sq)
            with parameters.whole_tensors(slot, *buffers) as tensors:
                # A fused projection is split.
                parts = (tensor.chunk(slot.num_parts) for tensor in tensors)
                for weight, change, part_gradient, second in zip(*parts, strict=True):
                    scale = settings.change_scale(weight, change, part_gradient, second / correct_2)
                    change.mul_(scale)
        for elements, factor in trained:
            master = parameters.master[elements]
            master.add_(self._change[elements], alpha=-settings.learning_rate * lr_factor * factor)
            parameters.refresh_compute(elements)

    def state_dict(self) -> dict[str, Tensor]:
        moments = {"first": self._exp_avg, "second": self._exp_avg_sq}
        return {"num_steps": self._num_steps, **self._parameters.state_views(moments)}


def propose_change(
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    master: Tensor,
    gradient: Tensor,
    weight_decay: Tensor,
    scalars: Tensor,
    clip_factor: Tensor,
) -> None:
    """Update the moments and the unscaled change in place; arrays are (n,), ``scalars`` (5,)."""
    change, saved_gradient, first, second = state
    new_1, new_2, correct_1, correct_2, epsilon = scalars.unbind()
    clipped = gradient.float() * clip_factor
    new_first = first + new_1 * (clipped - first)
    new_second = second + new_2 * (clipped * clipped - second)
    saved_gradient.copy_(clipped)
    first.copy_(new_first)
    second.copy_(new_second)
    change.copy_(
        new_first / correct_1 / ((new_second / correct_2).sqrt() + epsilon) + weight_decay * master
    )
