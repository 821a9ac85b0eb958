"""Long short-term memory as a token mixer (Hochreiter and Schmidhuber 1997)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.modules.attention.cache import RecurrentCarry
from bertwright.modules.attention.mask.token_runs import TokenRuns
from bertwright.modules.dropout_rng import DropoutRng, weight_dropout
from bertwright.modules.hooks import HookPoint, tap
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.recurrent.lstm_kernels import (
    LSTMState,
    LSTMWeights,
    final_state,
    run_lstm_explicit,
    run_lstm_fused,
)
from bertwright.modules.recurrent.recurrent_mixer import RecurrentConfig, RecurrentLayer


class LSTMConfig(RecurrentConfig):
    """An LSTM layer for each reading direction of the attention rule.

    - ``cell``: width of the cell, which is projected to the width of the layer; None for no
      projection
    - ``between``: output width of all layers but the last; None for the model's width
    - ``clip``: bound of cells and projected states
    - ``biases``: 2 for a second, redundant bias, as in PyTorch
    - ``forget``: number that is added to the forget gate
    - ``dropout``: dropout rate of recurrent weights (Merity et al. 2018)
    - ``kernel``: ``auto`` is fused unless there is clipping or a projection
    """

    kind: Literal["lstm"] = "lstm"
    cell: int | None = Field(default=None, ge=1, le=65_536)
    between: int | None = Field(default=None, ge=1, le=65_536)
    clip: float | None = Field(default=None, gt=0)
    biases: Literal[1, 2] = 1
    forget: float = 1.0
    dropout: float = Field(default=0.0, ge=0, lt=1)
    kernel: Literal["auto", "explicit"] = "auto"

    supports_memory: ClassVar[bool] = True

    def hidden_widths(self, embeddings_width: int, width: int, num_blocks: int) -> list[int]:
        if not num_blocks:
            return [width]
        return [embeddings_width, *[self.between or width] * (num_blocks - 1), width]

    def layer_flops(self, input_width: int, output_width: int) -> float:
        cell = self.cell or output_width
        projection = 2 * cell * output_width if self.cell else 0
        return 8 * cell * (input_width + output_width) + projection

    def build_layer(self, input_width: int, output_width: int) -> "LSTMLayer":
        return LSTMLayer(self, input_width, output_width)


class LSTMLayer(RecurrentLayer):
    """An LSTM layer that reads in one direction."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "input.weight": ParameterRole("matrix", num_parts=4),
        "recurrent.weight": ParameterRole("matrix", num_parts=4),
        "recurrent_bias": ParameterRole("bias"),
    }

    def __init__(self, config: LSTMConfig, input_width: int, output_width: int) -> None:
        super().__init__()
        cell = config.cell or output_width
        self.clip, self.dropout_rate, self.forget_bias = config.clip, config.dropout, config.forget
        is_fusable = config.clip is None and config.cell is None
        self.is_fused = is_fusable and config.kernel != "explicit"
        self.input = nn.Linear(input_width, 4 * cell)
        self.recurrent = nn.Linear(output_width, 4 * cell, bias=False)
        self.projection = nn.Linear(cell, output_width, bias=False) if config.cell else None
        self.recurrent_bias = nn.Parameter(torch.zeros(4 * cell)) if config.biases == 2 else None

    def forward(
        self,
        x: Tensor,
        runs: TokenRuns,
        direction_index: int,
        dropout_rng: DropoutRng | None = None,
        hooks: HookPoint | None = None,
        past: RecurrentCarry | None = None,
    ) -> Tensor:
        """Map x (B, L, input_width) to (B, L, output_width) along the runs of a direction."""
        inputs, weights = runs.gather(x), self.build_weights(dropout_rng, direction_index)
        initial = self._initial_state(inputs, runs, past)
        is_traced = hooks is not None and hooks.is_requested("state", "cell", "gates")
        if is_traced or not self.is_fused:
            trace = run_lstm_explicit(inputs, initial, weights, self.clip)
            for name, values in (("gates", trace.gates), ("cell", trace.cell)):
                tap(hooks, name, runs.scatter(values, x))
            outputs, final = trace.h, final_state(trace, runs.lengths)
        else:
            outputs, final = run_lstm_fused(inputs, runs.lengths, initial, weights)
        if past is not None:
            past.store(torch.cat(final, dim=1)[runs.last_runs][:, None])
        return tap(hooks, "state", runs.scatter(outputs, x))

    def build_weights(self, dropout_rng: DropoutRng | None, direction_index: int) -> LSTMWeights:
        """Return the weights of one pass, with weight dropout."""
        bias = self.input.bias
        if self.recurrent_bias is not None:
            bias = bias + self.recurrent_bias
        cell = len(bias) // 4
        bias = bias + nn.functional.pad(bias.new_full((cell,), self.forget_bias), (cell, 2 * cell))
        recurrent = weight_dropout(
            self.recurrent.weight, self.dropout_rate, dropout_rng, direction_index
        )
        projection = None if self.projection is None else self.projection.weight
        return LSTMWeights(self.input.weight, recurrent, bias, projection)

    def _initial_state(
        self, inputs: Tensor, runs: TokenRuns, past: RecurrentCarry | None
    ) -> LSTMState:
        """Return the initial state: 0, or the carried state for runs that continue from memory."""
        widths = [self.recurrent.weight.shape[1], self.recurrent.weight.shape[0] // 4]
        if past is None or past.state is None:
            h, c = (inputs.new_zeros(len(runs.sequence_ids), width) for width in widths)
            return LSTMState(h, c)
        carried = past.state[runs.sequence_ids, 0] * runs.is_continued[:, None]
        h, c = carried.to(inputs.dtype).split(widths, dim=1)
        return LSTMState(h, c)
