"""Blocks that can be run backwards.

Of a reversible stack only the end is kept while training: on the way back the input of each block
is found again from its output (Gomez et al. 2017; Kitaev et al. 2020, section 3). So the memory
that activations take does not grow with the depth; the blocks are computed once more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.passage import Notes, Passage, Step
from bertwright.encoder.taps import tap


class Reversing(Passage):
    """Two streams, both the embeddings at first; attention adds to one and the feed-forward to the
    other, each by what it reads of the other one. Their mean goes on.

    Where someone listens, who may change values on their way, where blocks remember what they read,
    or compute with weights that are only lent to them, nothing is computed twice and all is kept:
    the definition.
    """

    narrows: ClassVar[bool] = False

    def forward(
        self,
        x: Tensor,
        blocks: Sequence[int],
        step: Callable[[int], Step],
        noise: Noise | None = None,
        real: Tensor | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        steps = [step(index) for index in blocks]
        once = any(
            each.site is not None
            or each.recall is not None
            or not all(parameter.is_leaf for parameter in each.block.parameters())
            for each in steps
        )
        return run_stored(x, steps) if once else run_reversible(x, steps)


@dataclass(frozen=True)
class Half:
    """What one sublayer adds to one stream, by the other; and the parameters it takes."""

    change: Callable[[Tensor], Tensor]
    parameters: tuple[nn.Parameter, ...]


def halves(step: Step, dtype: torch.dtype) -> list[Half]:
    """What the attention and the feed-forward of a block add, computed in ``dtype``, from first to
    last."""
    return [
        Half(
            partial(step.change, dtype, number),
            tuple(p for p in step.block.parameters_of(number) if p.requires_grad),
        )
        for number in (1, 2)
    ]


def run_stored(x: Tensor, steps: Sequence[Step]) -> Tensor:
    """x (B, L, D) through the blocks, everything kept: the definition."""
    first = second = _wide(x)
    for step in steps:
        second = tap(step.site, "input", second)
        attention, feed_forward = halves(step, x.dtype)
        first = first + attention.change(second)
        first = tap(step.site, "residual_middle", first)
        second = second + feed_forward.change(first)
        mean = (first + second) / 2
        moved = tap(step.site, "residual", mean) - mean
        first, second = first + moved, second + moved
    return ((first + second) / 2).to(x.dtype)


def run_reversible(x: Tensor, steps: Sequence[Step]) -> Tensor:
    """The same, keeping the end only."""
    sublayers = [half for step in steps for half in halves(step, x.dtype)]
    parameters = [parameter for half in sublayers for parameter in half.parameters]
    wide = _wide(x)
    ends: tuple[Tensor, Tensor] = _Reversible.apply(sublayers, wide, wide, *parameters)  # type: ignore[no-untyped-call]
    return ((ends[0] + ends[1]) / 2).to(x.dtype)


class _Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sublayers: list[Half], *given: Tensor) -> Any:
        # The stream that is read and the one that is added to take turns.
        read, written = given[1], given[0]
        for half in sublayers:
            read, written = written + half.change(read), read
        ctx.sublayers = sublayers
        ctx.save_for_backward(read, written)
        return written, read

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        read, written = (kept.detach() for kept in ctx.saved_tensors)
        of_written, of_read = gradients
        of_parameters: list[tuple[Tensor | None, ...]] = []
        for half in reversed(ctx.sublayers):
            # What was read is the stream written last but one.
            before = written.requires_grad_()
            with torch.enable_grad():
                change = half.change(before)
            found = torch.autograd.grad(
                change, (before, *half.parameters), of_read, allow_unused=True
            )
            of_parameters.append(found[1:])
            before = before.detach()
            read, written = before, read - change.detach()
            of_read, of_written = of_written + found[0], of_read
        flat = [gradient for own in reversed(of_parameters) for gradient in own]
        return None, of_written, of_read, *flat


def _wide(x: Tensor) -> Tensor:
    """Streams in float32 at least: what is added must be taken away again."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
