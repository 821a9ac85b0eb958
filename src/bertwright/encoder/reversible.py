"""Reversible blocks, which recompute activations in the backward pass.

Training stores only the final streams, and recomputes the input of each block from its output
(Gomez et al. 2017; Kitaev et al. 2020, section 3). The memory for activations does not grow with
the depth, but the blocks are computed once more.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertwright.encoder.layer_stack import BlockCall, LayerStack, StackContext
from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.hooks import tap


class ReversibleLayerStack(LayerStack):
    """A stack with two streams, to which attention and feed-forward add in turn.

    Both streams start as the embeddings, and the result is their mean. Activations are stored as
    usual with hooks (which may change values), with memory, and if parameters are not leaves.
    """

    supports_output_positions: ClassVar[bool] = False
    calls_every_block: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._skipped = set[int]()

    @contextmanager
    def skipping(self, block: int) -> Generator[None]:
        # The output that hooks see is the mean of the streams, which do not follow from it.
        before = self._skipped
        self._skipped = before | {block}
        try:
            yield
        finally:
            self._skipped = before

    def forward(self, x: Tensor, blocks: Sequence[int], context: StackContext) -> Tensor:
        calls = [context.get_call(index) for index in blocks if index not in self._skipped]
        must_store = any(
            call.context.hooks is not None
            or call.get_past is not None
            or not all(parameter.is_leaf for parameter in call.block.parameters())
            for call in calls
        )
        run = run_storing_activations if must_store else run_recomputing_activations
        return run(x, calls)


@dataclass(frozen=True)
class ReversibleUpdate:
    """A sublayer as a function of one stream that is added to the other, with its parameters."""

    function: Callable[[Tensor], Tensor]
    parameters: tuple[nn.Parameter, ...]


def block_updates(call: BlockCall, dtype: torch.dtype) -> list[ReversibleUpdate]:
    """Return the updates of the attention and the feed-forward of a block, in ``dtype``."""
    return [
        ReversibleUpdate(
            partial(call.run_sublayer, dtype, number),
            tuple(p for p in call.block.sublayer_parameters(number) if p.requires_grad),
        )
        for number in (1, 2)
    ]


def run_storing_activations(x: Tensor, calls: Sequence[BlockCall]) -> Tensor:
    """Run x (B, L, D) through the blocks and store all activations, as the definition."""
    first = second = at_least_float32(x)
    for call in calls:
        second = tap(call.context.hooks, "input", second)
        attention, feed_forward = block_updates(call, x.dtype)
        first = first + attention.function(second)
        first = tap(call.context.hooks, "residual_middle", first)
        second = second + feed_forward.function(first)
        mean = (first + second) / 2
        change = tap(call.context.hooks, "residual", mean) - mean
        first, second = first + change, second + change
    return ((first + second) / 2).to(x.dtype)


def run_recomputing_activations(x: Tensor, calls: Sequence[BlockCall]) -> Tensor:
    """Run x (B, L, D) through the blocks and store only the final streams."""
    updates = [update for call in calls for update in block_updates(call, x.dtype)]
    parameters = [parameter for update in updates for parameter in update.parameters]
    start = at_least_float32(x)
    first, second = _ReversibleFunction.apply(updates, start, start, *parameters)  # type: ignore[no-untyped-call]
    return ((first + second) / 2).to(x.dtype)


class _ReversibleFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, updates: list[ReversibleUpdate], *tensors: Tensor) -> Any:
        # Each update reads one stream and adds to the other.
        read, written = tensors[1], tensors[0]
        for update in updates:
            read, written = written + update.function(read), read
        ctx.updates = updates
        ctx.save_for_backward(read, written)
        return written, read

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> Any:
        read, written = (stream.detach() for stream in ctx.saved_tensors)
        written_gradient, read_gradient = output_gradients
        parameter_gradients: list[tuple[Tensor | None, ...]] = []
        for update in reversed(ctx.updates):
            # In the forward pass, this update read the stream that is now ``written``.
            update_input = written.requires_grad_()
            with torch.enable_grad():
                change = update.function(update_input)
            gradients = torch.autograd.grad(
                change, (update_input, *update.parameters), read_gradient, allow_unused=True
            )
            parameter_gradients.append(gradients[1:])
            read, written = update_input.detach(), read - change.detach()
            read_gradient, written_gradient = written_gradient + gradients[0], read_gradient
        flat = [g for gradients in reversed(parameter_gradients) for g in gradients]
        return None, written_gradient, read_gradient, *flat
