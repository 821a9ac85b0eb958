"""Layers of task heads other than linear ones."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.modules.parameter_roles import ParameterRole

HeadMix = Literal["concat", "sum", "mean", "learned"]


class DenseActivation(nn.Module):
    """A dense layer with an activation: (M, D) to (M, D)."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class LayerMix(nn.Module):
    """A sum, mean or learned mix of encoder layers: (M, r n D) to (M, r D).

    r is the number of pooled vectors, n the number of layers. Learned weights start equal, with
    gain 1.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "weights": ParameterRole("bias"),
        "gain": ParameterRole("gate"),
    }

    def __init__(self, mode: HeadMix, num_layers: int, num_poolings: int) -> None:
        super().__init__()
        self.mode, self.num_layers, self.num_poolings = mode, num_layers, num_poolings
        if mode == "learned":
            self.weights, self.gain = (
                nn.Parameter(torch.zeros(num_layers)),
                nn.Parameter(torch.ones(1)),
            )

    def forward(self, x: Tensor) -> Tensor:
        layers = x.view(x.shape[0], self.num_poolings, self.num_layers, -1)
        if self.mode == "learned":
            weights = torch.softmax(self.weights, 0)[:, None]
            return (self.gain * (layers * weights).sum(2)).flatten(1)
        return (layers.sum(2) if self.mode == "sum" else layers.mean(2)).flatten(1)


class WordBiLSTM(nn.Module):
    """A bidirectional LSTM over the words of each sequence: (M, W) to (M, 2 H)."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            input_size, hidden_size, num_layers, batch_first=True, bidirectional=True
        )

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Return the parameter roles: the weights are stacks of four gate matrices."""
        return {
            f"lstm.{name}": ParameterRole("matrix", num_parts=4)
            if "weight" in name
            else ParameterRole("bias")
            for name, _ in self.lstm.named_parameters()
        }

    @property
    def input_projections(self) -> list[tuple[Tensor, Tensor]]:
        """Return weights (4 H, W) and biases (4 H,) of the first layer's input, both directions."""
        lstm: Any = self.lstm
        return [
            (lstm.weight_ih_l0, lstm.bias_ih_l0),
            (lstm.weight_ih_l0_reverse, lstm.bias_ih_l0_reverse),
        ]

    def forward(self, x: Tensor, output_lengths: Sequence[int]) -> Tensor:
        sequences = nn.utils.rnn.pad_sequence(list(x.split(list(output_lengths))), batch_first=True)
        lengths = torch.tensor(output_lengths)
        packed = nn.utils.rnn.pack_padded_sequence(
            sequences, lengths, batch_first=True, enforce_sorted=False
        )
        outputs, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        real = torch.arange(outputs.shape[1])[None] < lengths[:, None]
        return outputs[real.to(outputs.device)]
