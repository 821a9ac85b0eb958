"""Layer stacks: which blocks run, and how their outputs are combined."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertwright.encoder.block import Block
from bertwright.modules.attention.cache import Past
from bertwright.modules.context import BlockContext
from bertwright.modules.dropout_rng import DropoutRng, uniform_for_step
from bertwright.modules.hooks import tap
from bertwright.modules.parameter_roles import ParameterRole

AuxOutputs = dict[str, Tensor]
"""Outputs of a forward pass besides the hidden states, by name."""

LAYER_DROP_STREAM = 65
"""Random stream of layer dropout."""


@dataclass(frozen=True, eq=False)
class BlockCall:
    """A block with all its inputs in one pass except the hidden states.

    ``position_signal``, (L, D) or (B, L, D), is added to the hidden states before the block.
    ``get_past`` returns the earlier tokens of the block, given its input.
    """

    block: Block
    context: BlockContext
    position_signal: Tensor | None = None
    get_past: Callable[[Tensor], Past] | None = None

    def __call__(self, x: Tensor, is_running: Tensor | None = None) -> Tensor:
        """Map hidden states (B, L, D) to (B, L, D), or (M, D).

        Positions at which ``is_running`` (B, L) bool is False keep their states.
        """
        block_input = x
        if self.position_signal is not None:
            block_input = x + self.position_signal.to(x.dtype)
        # Hooks work only in the uncompiled block.
        run = self.block if self.context.hooks is None else self.block.forward
        output = run(block_input, self._context_with_past(block_input))
        if is_running is not None:
            output = torch.where(is_running[..., None], output, x)
        return tap(self.context.hooks, "residual", output)

    def run_sublayer(
        self, dtype: torch.dtype, sublayer_number: int, hidden_states: Tensor
    ) -> Tensor:
        """Return the output of a sublayer for a stream (B, L, D), computed in ``dtype``."""
        context = self._context_with_past(hidden_states, dtype)
        return self.block.run_sublayer_in_dtype(dtype, sublayer_number, hidden_states, context)

    def _context_with_past(self, x: Tensor, dtype: torch.dtype | None = None) -> BlockContext:
        """Return the context with the earlier tokens of the block, given its input."""
        if self.get_past is None:
            return self.context
        return replace(self.context, past=self.get_past(x.to(dtype or x.dtype)))


@dataclass(frozen=True, eq=False)
class StackContext:
    """Inputs of a layer stack in one pass, except the hidden states.

    ``get_call`` returns the call of a block by its index. ``is_real`` (B, L) bool is False at
    padding. The stack adds its auxiliary outputs to ``aux_outputs``. If ``has_hooks``, every block
    must run.
    """

    get_call: Callable[[int], BlockCall]
    dropout_rng: DropoutRng | None = None
    is_real: Tensor | None = None
    aux_outputs: AuxOutputs | None = None
    has_hooks: bool = False


class LayerStack(nn.Module):
    """A stack that runs blocks one after the other.

    In training each block is dropped with probability ``drop_rate``, for all sequences of a step
    (Fan et al. 2020). In inference every ``every``-th block runs.
    """

    supports_output_positions: ClassVar[bool] = True
    """True if only the final hidden states depend on the output of the last block."""

    calls_every_block: ClassVar[bool] = True
    """True if a step calls the same blocks, by their ``forward``, for any batch."""

    def __init__(self, drop_rate: float = 0.0, every: int = 1) -> None:
        super().__init__()
        self.drop_rate, self.every = drop_rate, every

    def forward(self, x: Tensor, blocks: Sequence[int], context: StackContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D), or (M, D) at output positions, with the given blocks."""
        for index in self.select_blocks(blocks, context.dropout_rng):
            x = context.get_call(index)(x)
        return x

    def skipping(self, block: int) -> AbstractContextManager[None] | None:
        """Return a context that skips a block; None if it is enough that it returns its input."""
        return None

    def select_blocks(self, blocks: Sequence[int], dropout_rng: DropoutRng | None) -> Sequence[int]:
        """Return the blocks that run."""
        if dropout_rng is None:
            return blocks[:: self.every]
        if self.drop_rate == 0.0:
            return blocks
        indices = torch.tensor(blocks, device=dropout_rng.seed.device)
        drop_rate = self.drop_rate * (
            1.0 if dropout_rng.dropout_scale is None else float(dropout_rng.dropout_scale)
        )
        uniforms: list[float] = uniform_for_step(dropout_rng, indices, LAYER_DROP_STREAM).tolist()
        return [
            index
            for index, random_number in zip(blocks, uniforms, strict=True)
            if random_number >= drop_rate
        ]


class AdaptiveComputationTime(LayerStack):
    """Each token passes through blocks until it halts (Graves 2016; Dehghani et al. 2019).

    Before every block a token gets a halting probability. When the sum of these exceeds
    1 - ``epsilon``, and at the last block, the remainder to 1 is used instead. The result is the
    mean of the hidden states after each block, weighted by these numbers. A halted token no longer
    changes, but other tokens can still attend to it. Padding does not enter the blocks.

    Auxiliary outputs: ``ponder`` (B, L), the number of blocks plus the last weight; ``halted``
    (B, L) bool, True for tokens that halted before the last block.
    """

    supports_output_positions: ClassVar[bool] = False
    calls_every_block: ClassVar[bool] = False
    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "halting_unit.bias": ParameterRole("gate")
    }

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.halting_unit = nn.Linear(width, 1)
        self.epsilon = epsilon

    def forward(self, x: Tensor, blocks: Sequence[int], context: StackContext) -> Tensor:
        is_running = context.is_real
        if is_running is None:
            is_running = torch.ones_like(x[..., 0], dtype=torch.bool)
        halted, mean = torch.zeros_like(is_running), torch.zeros_like(x)
        # In float32 at least, because a sum of many probabilities is compared with 1.
        total = x.new_zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32))
        # Halted tokens pass through blocks unchanged, so that all blocks can run.
        runs_all_blocks = context.has_hooks or torch.compiler.is_exporting()
        ponder = total
        for index in blocks:
            probability = torch.sigmoid(self.halting_unit(x).squeeze(-1).to(total.dtype))
            is_done = total + probability > 1 - self.epsilon
            ends = is_done if index != blocks[-1] else torch.ones_like(is_done)
            weight = torch.where(ends, 1 - total, probability) * is_running
            x = context.get_call(index)(x, is_running)
            mean = mean + weight[..., None].to(x.dtype) * x
            ponder = ponder + is_running + weight * ends
            halted = halted | (is_running & is_done) if index != blocks[-1] else halted
            total = total + weight
            is_running = is_running & ~ends
            if not runs_all_blocks and not is_running.any():
                break
        if context.aux_outputs is not None:
            context.aux_outputs.update({"ponder": ponder, "halted": halted})
        return mean
