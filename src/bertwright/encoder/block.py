"""A block: a sequence of sublayers around the residual stream."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from bertwright.modules.context import BlockContext
from bertwright.modules.dropout import Dropout
from bertwright.modules.hooks import child_hooks, tap

SUBLAYER_NAMES = {"s": "attention", "f": "feed_forward", "c": "cross_attention"}
"""Sublayers by their letter in an order string; s is self-attention or another mixer."""

MIXER_SUBLAYERS = ("attention", "cross_attention")
"""Names of the sublayers that get the context of the block."""

FEED_FORWARD_STREAM = 100
"""Dropout stream within a feed-forward, plus the number of its sublayer."""

ResidualFunction = Callable[[Tensor, Tensor], Tensor]
"""Function from the input and the output of a sublayer to the next hidden states."""


def add_residual(x: Tensor, change: Tensor) -> Tensor:
    """Return the input plus the output of a sublayer."""
    return x + change


def no_residual(x: Tensor, change: Tensor) -> Tensor:
    """Return only the output of a sublayer."""
    return change


def nth_name(name: str, occurrence: int) -> str:
    """Return the name of the n-th sublayer of a kind in a block: ``name``, ``name_2``, ..."""
    return name if occurrence == 1 else f"{name}_{occurrence}"


class Block(nn.Module):
    """A sequence of sublayers, each with norm, dropout and residual as the norm placement requires.

    ``norms`` holds one norm per sublayer, possibly an identity. ``depth_averages``, if configured,
    combine the output of a sublayer with all earlier ones. ``output_widths`` are the output widths
    of the sublayers. ``adapters`` follow sublayers; there are none unless added later.
    """

    def __init__(
        self,
        sublayers: dict[str, nn.Module],
        norms: dict[str, nn.Module],
        depth_averages: dict[str, nn.Module],
        is_pre_norm: bool,
        dropout: Dropout,
        residual_function: ResidualFunction,
        output_widths: Mapping[str, int],
    ) -> None:
        super().__init__()
        self.sublayers = nn.ModuleDict(sublayers)
        self.norms = nn.ModuleDict(norms)
        self.depth_averages = nn.ModuleDict(depth_averages)
        self.adapters = nn.ModuleDict()
        self.is_pre_norm, self.dropout = is_pre_norm, dropout
        self.residual_function, self.output_widths = residual_function, dict(output_widths)
        mixers = [n for n, name in enumerate(sublayers, start=1) if name in MIXER_SUBLAYERS]
        self.last_mixer = max(mixers, default=0)

    @property
    def supports_output_positions(self) -> bool:
        """Return whether the block can compute only some positions."""
        return not self.depth_averages and not self.dropout.is_locked

    def forward(self, x: Tensor, context: BlockContext) -> Tensor:
        """Map x (B, L, D) to (B, L, D), or (M, D) at the output positions."""
        x = tap(context.hooks, "input", x)
        return self.run_sublayers(x, context)

    def run_sublayers(
        self, x: Tensor, context: BlockContext, attention_input: Tensor | None = None
    ) -> Tensor:
        """Run all sublayers on x (B, L, d); those after the last mixer only at output positions.

        If ``attention_input`` (B, L, D) is set, attention reads it instead of x (bottleneck).
        """
        if context.output_positions is not None and not self.last_mixer:
            x, context = context.gather_positions(x)
        for number, name in enumerate(self.sublayers, start=1):
            change = self.run_sublayer(number, x, context, attention_input)
            if context.output_positions is not None and number == self.last_mixer:
                x, context = context.gather_positions(x)
            x = self.residual_function(x, change)
            if not self.is_pre_norm:
                x = self.norms[name](x)
            if context.sublayer_outputs is not None:
                context.sublayer_outputs.values.append(x)
                x = self.depth_averages[name](context.sublayer_outputs.values)
            if number < len(self.sublayers):
                x = tap(context.hooks, nth_name("residual_middle", number), x)
        return x

    def run_sublayer(
        self,
        sublayer_number: int,
        x: Tensor,
        context: BlockContext,
        attention_input: Tensor | None = None,
    ) -> Tensor:
        """Return the output of a sublayer, numbered from 1, for a residual stream x (B, L, d)."""
        name = list(self.sublayers)[sublayer_number - 1]
        norm, sublayer = self.norms[name], self.sublayers[name]
        inner = norm(x) if self.is_pre_norm else x
        if name in MIXER_SUBLAYERS:
            inner = inner if attention_input is None else attention_input
            inner = tap(context.hooks, f"{name}.input", inner)
            past = context.past
            if isinstance(past, Tensor) and self.is_pre_norm and name == "attention":
                past = norm(past)
            output = sublayer(inner, context.for_mixer(name, past))
        else:
            inner = tap(context.hooks, f"{name}.input", inner)
            hooks, stream = child_hooks(context.hooks, name), FEED_FORWARD_STREAM + sublayer_number
            output = sublayer(inner, hooks, context.dropout_rng, stream)
        if context.output_positions is not None and sublayer_number == self.last_mixer:
            output, context = context.gather_positions(output)
        output = self.dropout(output, context.dropout_rng, 1 + sublayer_number)
        return self.adapters[name](output) if name in self.adapters else output

    def run_sublayer_in_dtype(
        self,
        dtype: torch.dtype,
        sublayer_number: int,
        hidden_states: Tensor,
        context: BlockContext,
    ) -> Tensor:
        """Run a sublayer in ``dtype`` if the residual stream has another dtype."""
        output = self.run_sublayer(sublayer_number, hidden_states.to(dtype), context)
        return output.to(hidden_states.dtype)

    def sublayer_parameters(self, sublayer_number: int) -> Iterator[nn.Parameter]:
        """Yield the parameters of a sublayer, numbered from 1, its norm and its adapter."""
        name = list(self.sublayers)[sublayer_number - 1]
        yield from self.sublayers[name].parameters()
        yield from self.norms[name].parameters()
        if name in self.adapters:
            yield from self.adapters[name].parameters()

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile the block, as one graph for all blocks, and single sublayers.

        With depth averages, whose inputs grow from block to block, only sublayers are compiled.
        """
        for part in self.sublayers.values() if self.depth_averages else (self,):
            part.compile(dynamic=dynamic)
        self.run_sublayer_in_dtype = torch.compile(self.run_sublayer_in_dtype, dynamic=dynamic)
