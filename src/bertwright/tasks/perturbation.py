"""The axis of perturbations: small changes of the embeddings against which a model is trained.

What is changed is what the embeddings give the blocks (not the vectors of pieces before their norm,
as in the paper on FreeLB), at real places only.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.objectives.objective import Loss
from bertwright.randomness import key

Run = Callable[[], tuple[Tensor, Loss]]
"""The outputs of a network for some rows, and their loss."""


class Perturbation(Choice):
    """The axis.

    Attributes:
        size: the length of the first change of a row, over the root of its numbers.
        step: the length of each further change along the gradient.
    """

    size: float = Field(default=1e-2, ge=0)
    step: float = Field(default=1e-1, gt=0)

    def check(self, answer: str) -> str | None:
        """What speaks against it for this kind of answer, in words."""
        return None

    def loss(self, embeddings: nn.Module, run: Run, real: Tensor, count: float, seed: int) -> Loss:
        """What the loop goes backward from.

        ``run`` computes outputs and loss of the rows, whose ``real`` places (B, L) are marked;
        ``count`` is what the loop divides losses by; ``seed`` draws the first change.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not a perturbation")


class FreeLb(Perturbation):
    """The mean loss along a path of changes that raise it, of which each costs one pass (Zhu et al.
    2020); ``most`` is the longest that a change may become."""

    kind: Literal["freelb"] = "freelb"
    steps: int = Field(default=3, ge=1, le=1_024)
    most: float | None = Field(default=None, gt=0)

    def loss(self, embeddings: nn.Module, run: Run, real: Tensor, count: float, seed: int) -> Loss:
        change = _Change(embeddings, real, self.size, seed)
        told = torch.zeros((), device=real.device)
        for number in range(self.steps):
            with change.applied():
                _, loss = run()
            if number + 1 == self.steps:
                total = loss.sum / self.steps + told
                return Loss(total, loss.count, loss.correct)
            (loss.sum / (self.steps * (count or 1.0))).backward()
            told = told + loss.sum.detach() / self.steps
            change.climb(change.gradient(), self.step, self.most)
        raise AssertionError("there is at least one step")


class Smart(Perturbation):
    """The loss, and how far the answers are from those to the change that moves them most: the
    symmetric Kullback-Leibler distance, of a single number the squared one (Jiang et al. 2020,
    section 3.1)."""

    kind: Literal["smart"] = "smart"
    weight: float = Field(default=1.0, gt=0)

    def check(self, answer: str) -> str | None:
        if answer in ("class", "cloze", "tags", "number", "option", "relevance"):
            return None
        return f"perturbation: smart compares classes or numbers, not answers of {answer}"

    def loss(self, embeddings: nn.Module, run: Run, real: Tensor, count: float, seed: int) -> Loss:
        outputs, loss = run()
        change = _Change(embeddings, real, self.size, seed)
        with change.applied():
            near, _ = run()
        (upward,) = torch.autograd.grad(_distance(near, outputs.detach()), change.value)
        change.climb(upward, self.step, None)
        with change.applied():
            far, _ = run()
        total = loss.sum + self.weight * _distance(far, outputs)
        return Loss(total, loss.count, loss.correct)


class _Change:
    """What is added to the embeddings of some rows; drawn when their width is known."""

    def __init__(self, embeddings: nn.Module, real: Tensor, size: float, seed: int) -> None:
        self.embeddings, self.real, self.size = embeddings, real.float()[..., None], size
        self.generator = torch.Generator().manual_seed(key(seed, "perturbation") >> 1)
        self._value: Tensor | None = None

    @property
    def value(self) -> Tensor:
        """(B, L, D)."""
        assert self._value is not None, "there is one when embeddings have been computed"
        return self._value

    def gradient(self) -> Tensor:
        """Of the loss with respect to the change."""
        assert self.value.grad is not None
        return self.value.grad

    @contextmanager
    def applied(self) -> Generator[None]:
        """The change is added while the context is open."""

        def add(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
            if self._value is None:
                self._value = self._drawn(output).requires_grad_()
            return output + self._value.to(output.dtype)

        handle = self.embeddings.register_forward_hook(add)
        try:
            yield
        finally:
            handle.remove()

    @torch.no_grad()
    def climb(self, gradient: Tensor, step: float, most: float | None) -> None:
        """Go so far along the gradient, row by row, and back to the longest that is allowed."""
        moved = self.value + step * gradient / _lengths(gradient).clamp(min=1e-12)
        if most is not None:
            moved = moved * (most / _lengths(moved).clamp(min=1e-12)).clamp(max=1.0)
        self._value = (moved * self.real).requires_grad_()

    def _drawn(self, like: Tensor) -> Tensor:
        """Evenly drawn, of the size that is asked."""
        drawn = torch.rand(like.shape, generator=self.generator).to(like.device) * 2 - 1
        numbers = (self.real.sum((1, 2), keepdim=True) * like.shape[-1]).clamp(min=1.0)
        return drawn * self.real * self.size / numbers.sqrt()


def _lengths(values: Tensor) -> Tensor:
    """Of rows (B, L, D), as (B, 1, 1)."""
    return values.flatten(1).norm(dim=1)[:, None, None]


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """How far answers (M, K) are from each other, summed."""
    if a.shape[-1] == 1:
        return (a - b).square().sum()
    first, second = F.log_softmax(a, -1), F.log_softmax(b, -1)
    return F.kl_div(first, second, reduction="sum", log_target=True) + F.kl_div(
        second, first, reduction="sum", log_target=True
    )
