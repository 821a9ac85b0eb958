"""Gated recurrent units as a token mixer (Cho et al. 2014).

r = sig(W_r x + U_r h), z = sig(W_z x + U_z h), and the next state is (1 - z) n + z h. The candidate
n is tanh(W x + U (r h)) if the state is reset before the product with U, as in the paper, and
tanh(W x + r (U h)) if after it, as in PyTorch.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bertwright.modules.attention.cache import RecurrentCarry
from bertwright.modules.attention.mask.token_runs import TokenRuns
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.hooks import HookPoint, tap
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.recurrent.recurrent_mixer import RecurrentConfig, RecurrentLayer

ResetOrder = Literal["before", "after"]


class GRUConfig(RecurrentConfig):
    """A layer of gated recurrent units for each reading direction of the attention rule.

    - ``reset``: ``before`` or ``after`` the product of the state with the recurrent weights
    - ``biases``: 0 for none, 1 for one, 2 also for a recurrent bias, as in PyTorch
    """

    kind: Literal["gru"] = "gru"
    reset: ResetOrder = "after"
    biases: Literal[0, 1, 2] = 1

    supports_graph: ClassVar[bool] = False

    def layer_flops(self, input_width: int, output_width: int) -> float:
        return 6 * output_width * (input_width + output_width)

    def build_layer(self, input_width: int, output_width: int) -> "GRULayer":
        return GRULayer(self, input_width, output_width)


class GRULayer(RecurrentLayer):
    """A layer of gated recurrent units; its gates are in the order r, z, n."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "input.weight": ParameterRole("matrix", num_parts=3),
        "recurrent.weight": ParameterRole("matrix", num_parts=3),
    }

    def __init__(self, config: GRUConfig, input_width: int, output_width: int) -> None:
        super().__init__()
        self.reset: ResetOrder = config.reset
        self.input = nn.Linear(input_width, 3 * output_width, bias=config.biases > 0)
        self.recurrent = nn.Linear(output_width, 3 * output_width, bias=config.biases > 1)

    def forward(
        self,
        x: Tensor,
        runs: TokenRuns,
        direction_index: int,
        dropout_rng: DropoutRng | None = None,
        hooks: HookPoint | None = None,
        past: RecurrentCarry | None = None,
    ) -> Tensor:
        assert past is None, "RecurrentConfig allows no memory without supports_memory"
        outputs = self.run_gates(runs.gather(self.input(x)))
        return tap(hooks, "state", runs.scatter(outputs, x))

    def run_gates(self, gate_inputs: Tensor) -> Tensor:
        """Return the states (R, T, H) after each token, given the gate inputs (R, T, 3H)."""
        return run_gru(gate_inputs, self.recurrent.weight, self.recurrent.bias, self.reset)


def run_gru(
    gate_inputs: Tensor, recurrent: Tensor, recurrent_bias: Tensor | None, reset: ResetOrder
) -> Tensor:
    """Return the states (R, T, H) of runs from a state of 0.

    ``gate_inputs`` (R, T, 3H) are W x with their bias, ``recurrent`` (3H, H) are the weights U.
    """
    width = recurrent.shape[1]
    if recurrent_bias is None:
        recurrent_bias = recurrent.new_zeros(3 * width)
    gate_weights, candidate_weights = recurrent.split((2 * width, width))
    gate_bias, candidate_bias = recurrent_bias.split((2 * width, width))
    h = gate_inputs.new_zeros(len(gate_inputs), width)
    steps: list[Tensor] = []
    for step_inputs in gate_inputs.unbind(1):
        gates, candidate = step_inputs.split((2 * width, width), dim=1)
        r, z = torch.sigmoid(gates + linear(h, gate_weights, gate_bias)).chunk(2, dim=1)
        if reset == "after":
            from_state = r * linear(h, candidate_weights, candidate_bias)
        else:
            from_state = linear(r * h, candidate_weights, candidate_bias)
        h = (1 - z) * torch.tanh(candidate + from_state) + z * h
        steps.append(h)
    return torch.stack(steps, dim=1)
