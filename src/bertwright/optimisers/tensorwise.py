"""Adam whose step is scaled tensor by tensor: LAMB and StableAdamW.

The tensors are the canonical ones: a fused projection is taken apart first.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from bertwright.machine.compiled import Compilable
from bertwright.optimisers.adam import AdamFamily
from bertwright.optimisers.optimiser import Update
from bertwright.optimisers.parameters import MasterParameters


class Tensorwise(AdamFamily):
    """What the two have in common."""

    def build(self, parameters: MasterParameters) -> "TensorwiseUpdate":
        return TensorwiseUpdate(self, parameters)

    def scale(self, weight: Tensor, change: Tensor, gradient: Tensor, second: Tensor) -> Tensor:
        """What the change of one tensor is multiplied with, given its values: 0-d."""
        raise TypeError(f"{type(self).__name__} is no optimiser by itself")


class Lamb(Tensorwise):
    """Every matrix moves by a share of its own norm (You et al. 2020); ALBERT.

    Biases, norms and gates move as under AdamW.
    """

    kind: Literal["lamb"] = "lamb"
    epsilon: float = Field(default=1e-6, gt=0)
    bias_correction: bool = False

    def scale(self, weight: Tensor, change: Tensor, gradient: Tensor, second: Tensor) -> Tensor:
        if weight.ndim < 2:
            return torch.ones((), device=weight.device)
        size, step = torch.linalg.vector_norm(weight), torch.linalg.vector_norm(change)
        return torch.where((size > 0) & (step > 0), size / step, 1.0)


class StableAdamW(Tensorwise):
    """AdamW that slows down where its second moment lags behind (Wortsman et al. 2023, 3.3).

    The step is divided by the root mean square of gradient / sqrt(second moment), where that is
    more than 1.
    """

    kind: Literal["stable-adamw"] = "stable-adamw"

    def scale(self, weight: Tensor, change: Tensor, gradient: Tensor, second: Tensor) -> Tensor:
        floor = self.epsilon**2
        ratio = (gradient.square() / second.clamp(min=floor)).mean().sqrt()
        return 1.0 / ratio.clamp(min=1.0)


class TensorwiseUpdate(Update):
    """Two moments per parameter, the number of steps, and the change of the step at hand."""

    def __init__(self, settings: Tensorwise, parameters: MasterParameters) -> None:
        self._settings, self._parameters = settings, parameters
        length, device = parameters.num_trainable, parameters.master.device
        self._first, self._second, self._change, self._gradient = (
            torch.zeros(length, device=device) for _ in range(4)
        )
        self._num_steps = torch.zeros((), dtype=torch.int64)
        self._decay = torch.zeros(length, device=device)
        self._decay[parameters.range("matrix", "table")] = settings.decay
        self._propose = Compilable(propose)

    def compilables(self) -> Sequence[Compilable[..., None]]:
        return (self._propose,)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: float, clip: Tensor) -> None:
        self._num_steps += 1
        settings, parameters = self._settings, self._parameters
        steps = int(self._num_steps) if settings.bias_correction else 1 << 40
        correct_1, correct_2 = 1 - settings.beta_1**steps, 1 - settings.beta_2**steps
        scalars = (1 - settings.beta_1, 1 - settings.beta_2, correct_1, correct_2, settings.epsilon)
        constants = torch.tensor(scalars, device=gradient.device)
        trained = parameters.trained(slice(0, parameters.num_trainable), settings.layer_decay)
        for where, _ in trained:
            self._propose(
                (
                    self._change[where],
                    self._gradient[where],
                    self._first[where],
                    self._second[where],
                ),
                parameters.master[where],
                gradient[where],
                self._decay[where],
                constants,
                clip,
            )
        for tensors in self._tensors(correct_2):
            tensors[1].mul_(settings.scale(*tensors))
        for where, factor in trained:
            master = parameters.master[where]
            master.add_(self._change[where], alpha=-settings.rate * rate * factor)
            parameters.refresh(where)

    def _tensors(self, correct_2: float) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Weight, change, gradient and corrected second moment of every canonical tensor."""
        found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for slot in self._parameters.slots_of("matrix", "table", "rest"):
            views = (
                flat[slot.start : slot.stop].view(slot.shape).chunk(slot.parts)
                for flat in (self._parameters.master, self._change, self._gradient, self._second)
            )
            found += [(w, c, g, s / correct_2) for w, c, g, s in zip(*views, strict=True)]
        return found

    def state(self) -> dict[str, Tensor]:
        named = {"num_steps": self._num_steps}
        for name, flat in (("first", self._first), ("second", self._second)):
            views = self._parameters.views(flat)
            named |= {f"{name}.{parameter}": view for parameter, view in views.items()}
        return named


def propose(
    state: tuple[Tensor, Tensor, Tensor, Tensor],
    master: Tensor,
    gradient: Tensor,
    decay: Tensor,
    scalars: Tensor,
    clip: Tensor,
) -> None:
    """Adam's change and the decay, before any scaling, in place; all (n,) but the scalars (5,)."""
    change, kept, first, second = state
    new_1, new_2, correct_1, correct_2, epsilon = scalars.unbind()
    clipped = gradient.float() * clip
    one = first + new_1 * (clipped - first)
    two = second + new_2 * (clipped * clipped - second)
    kept.copy_(clipped)
    first.copy_(one)
    second.copy_(two)
    change.copy_(one / correct_1 / ((two / correct_2).sqrt() + epsilon) + decay * master)
