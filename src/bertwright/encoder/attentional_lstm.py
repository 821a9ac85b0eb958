"""A recurrent network that attends to a source at every step (Luong et al. 2015).

h_t = LSTM([x_t ; a_{t-1}]), with the attentional state a_{t-1} of the step before as a fed input;
w_t = softmax(H (W_1 h_t + b_1)) over the hidden states H of the source, and
a_t = tanh(W_2 [H^T w_t ; h_t] + b_2), the state that predicts a token (McCann et al. 2017).
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from bertwright.modules.recurrent.lstm import LSTMConfig, LSTMLayer
from bertwright.modules.recurrent.lstm_kernels import LSTMState, lstm_step
from bertwright.modules.token_tensors import CrossAttentionSource


class AttentionalLSTM(nn.Module):
    """A stack of LSTM layers with global attention, from a state of 0."""

    def __init__(self, input_width: int, width: int, num_layers: int) -> None:
        super().__init__()
        config = LSTMConfig(biases=2, forget=0.0)
        input_widths = [input_width + width, *[width] * (num_layers - 1)]
        self.layers = nn.ModuleList(
            LSTMLayer(config, layer_input_width, width) for layer_input_width in input_widths
        )
        self.query = nn.Linear(width, width)
        self.combination = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, source: CrossAttentionSource) -> Tensor:
        """Return the attentional states (B, T, D) of inputs x (B, T, E)."""
        weights = [cast(LSTMLayer, layer).build_weights(None, 0) for layer in self.layers]
        keys, document_ids = source.hidden_states, source.token_info.document_ids
        attended = keys.new_zeros(len(x), keys.shape[2])
        states = [LSTMState(attended, attended)] * len(weights)
        outputs: list[Tensor] = []
        for step_input in x.unbind(1):
            h = torch.cat((step_input, attended), dim=1)
            for number, layer_weights in enumerate(weights):
                gate_inputs = linear(h, layer_weights.input, layer_weights.bias)
                states[number], _ = lstm_step(gate_inputs, states[number], layer_weights)
                h = states[number].h
            scores = torch.einsum("bsd,bd->bs", keys, self.query(h))
            if document_ids is not None:
                scores = scores.masked_fill(document_ids < 0, -torch.inf)
            context = torch.einsum("bs,bsd->bd", scores.softmax(dim=1), keys)
            attended = torch.tanh(self.combination(torch.cat((context, h), dim=1)))
            outputs.append(attended)
        return torch.stack(outputs, dim=1)
