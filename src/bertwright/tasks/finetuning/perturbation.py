"""The axis of perturbations: adversarial changes of the embeddings in training.

They are added to the output of the embeddings at real positions only. The FreeLB paper instead adds
them to the token vectors before the norm.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.core.rng import stream_key
from bertwright.objectives.model_output import Loss

ForwardPass = Callable[[], tuple[Tensor, Loss]]
"""Returns the outputs of a model for a micro-batch, and their loss."""


class PerturbationConfig(Config):
    """The axis of perturbations.

    Attributes:
        init_norm: norm of the initial perturbation of a sequence, divided by the square root of its
            number of values.
        step_size: norm of each further step along the gradient.
    """

    init_norm: float = Field(default=1e-2, ge=0)
    step_size: float = Field(default=1e-1, gt=0)

    def check(self, output_kind: str) -> str | None:
        """Return why the perturbation does not fit an output type; None if it does."""
        return None

    def loss(
        self,
        embeddings: nn.Module,
        forward_pass: ForwardPass,
        is_real: Tensor,
        count: float,
        seed: int,
    ) -> Loss:
        """Return the loss for the backward pass.

        ``forward_pass`` computes outputs and loss. is_real: (B, L), True at real positions.
        ``count`` divides the losses; ``seed`` draws the initial perturbation.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not a perturbation")


class FreeLBConfig(PerturbationConfig):
    """FreeLB: the mean loss along an ascent path, one pass per step (Zhu et al. 2020).

    ``max_norm`` bounds the norm of the perturbation.
    """

    kind: Literal["freelb"] = "freelb"
    num_steps: int = Field(default=3, ge=1, le=1_024)
    max_norm: float | None = Field(default=None, gt=0)

    def loss(
        self,
        embeddings: nn.Module,
        forward_pass: ForwardPass,
        is_real: Tensor,
        count: float,
        seed: int,
    ) -> Loss:
        perturbation = _EmbeddingPerturbation(embeddings, is_real, self.init_norm, seed)
        previous = torch.zeros((), device=is_real.device)
        for step in range(self.num_steps):
            with perturbation.apply():
                _, loss = forward_pass()
            if step + 1 == self.num_steps:
                total = loss.sum / self.num_steps + previous
                return Loss(total, loss.count, loss.num_correct)
            (loss.sum / (self.num_steps * (count or 1.0))).backward()
            previous = previous + loss.sum.detach() / self.num_steps
            perturbation.ascend(perturbation.gradient(), self.step_size, self.max_norm)
        raise AssertionError("there is at least one step")


class SMARTConfig(PerturbationConfig):
    """SMART: a penalty on how much the worst perturbation changes the outputs.

    The change is the symmetric Kullback-Leibler divergence, or the squared error for numbers (Jiang
    et al. 2020, section 3.1). Norms are Euclidean and the start is uniform, where the paper bounds
    the largest value and starts from normal noise. Its proximal steps (section 3.2) are left out.
    """

    kind: Literal["smart"] = "smart"
    weight: float = Field(default=1.0, gt=0)

    def check(self, output_kind: str) -> str | None:
        if output_kind in ("class", "cloze", "tags", "number", "option", "relevance"):
            return None
        return f"perturbation: smart needs classes or numbers, not output type {output_kind}"

    def loss(
        self,
        embeddings: nn.Module,
        forward_pass: ForwardPass,
        is_real: Tensor,
        count: float,
        seed: int,
    ) -> Loss:
        outputs, loss = forward_pass()
        perturbation = _EmbeddingPerturbation(embeddings, is_real, self.init_norm, seed)
        with perturbation.apply():
            initial_outputs, _ = forward_pass()
        (gradient,) = torch.autograd.grad(
            _output_distance(initial_outputs, outputs.detach()), perturbation.value
        )
        perturbation.ascend(gradient, self.step_size, None)
        with perturbation.apply():
            worst_outputs, _ = forward_pass()
        total = loss.sum + self.weight * _output_distance(worst_outputs, outputs)
        return Loss(total, loss.count, loss.num_correct)


class _EmbeddingPerturbation:
    """A perturbation of the embeddings of a batch, sampled once their width is known."""

    def __init__(self, embeddings: nn.Module, is_real: Tensor, init_norm: float, seed: int) -> None:
        self.embeddings, self.is_real, self.size = embeddings, is_real.float()[..., None], init_norm
        self.generator = torch.Generator().manual_seed(stream_key(seed, "perturbation") >> 1)
        self._value: Tensor | None = None

    @property
    def value(self) -> Tensor:
        """The perturbation (B, L, D)."""
        assert self._value is not None, "the embeddings have been computed"
        return self._value

    def gradient(self) -> Tensor:
        """Return the gradient of the loss with respect to the perturbation."""
        assert self.value.grad is not None
        return self.value.grad

    @contextmanager
    def apply(self) -> Generator[None]:
        """Add the perturbation within the context."""

        def add(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            if self._value is None:
                self._value = self._sample(output).requires_grad_()
            return output + self._value.to(output.dtype)

        handle = self.embeddings.register_forward_hook(add)
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def ascend(self, gradient: Tensor, step_size: float, max_norm: float | None) -> None:
        """Step along the gradient of each sequence, then project to ``max_norm``."""
        moved = self.value + step_size * gradient / _norms(gradient).clamp(min=1e-12)
        if max_norm is not None:
            moved = moved * (max_norm / _norms(moved).clamp(min=1e-12)).clamp(max=1.0)
        self._value = (moved * self.is_real).requires_grad_()

    def _sample(self, like: Tensor) -> Tensor:
        """Sample uniformly, with the initial norm."""
        noise = torch.rand(like.shape, generator=self.generator).to(like.device) * 2 - 1
        num_values = (self.is_real.sum((1, 2), keepdim=True) * like.shape[-1]).clamp(min=1.0)
        return noise * self.is_real * self.size / num_values.sqrt()


def _norms(values: Tensor) -> Tensor:
    """Return the norms (B, 1, 1) of values (B, L, D)."""
    return values.flatten(1).norm(dim=1)[:, None, None]


def _output_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return the summed distance of two outputs (M, K)."""
    if a.shape[-1] == 1:
        return (a - b).square().sum()
    first, second = F.log_softmax(a, -1), F.log_softmax(b, -1)
    return F.kl_div(first, second, reduction="sum", log_target=True) + F.kl_div(
        second, first, reduction="sum", log_target=True
    )
