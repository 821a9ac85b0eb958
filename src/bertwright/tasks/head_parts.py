"""What heads are made of, beside linear layers."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.encoder.roles import Role

HeadMix = Literal["concat", "sum", "mean", "learned"]


class ActivatedDense(nn.Module):
    """The activation of a dense layer: (M, D) to (M, D)."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class Mix(nn.Module):
    """Layers to one: (M, r n D), r readings of n layers each, to (M, r D).

    Learned weights start equal, and so does the number that the whole is multiplied with, at 1.
    """

    parameter_roles: ClassVar[dict[str, Role]] = {
        "weights": Role("bias"),
        "gain": Role("gate"),
    }

    def __init__(self, how: HeadMix, number: int, readings: int) -> None:
        super().__init__()
        self.how, self.number, self.readings = how, number, readings
        if how == "learned":
            self.weights, self.gain = nn.Parameter(torch.zeros(number)), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        layers = x.view(x.shape[0], self.readings, self.number, -1)
        if self.how == "learned":
            shares = torch.softmax(self.weights, 0)[:, None]
            return (self.gain * (layers * shares).sum(2)).flatten(1)
        return (layers.sum(2) if self.how == "sum" else layers.mean(2)).flatten(1)


class OverWords(nn.Module):
    """LSTMs over the words of each row: (M, W) to (M, 2 H)."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, depth, batch_first=True, bidirectional=True)

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """Those of the gates are matrices, four one above the other."""
        return {
            f"lstm.{name}": Role("matrix", parts=4) if "weight" in name else Role("bias")
            for name, _ in self.lstm.named_parameters()
        }

    @property
    def first_maps(self) -> list[tuple[Tensor, Tensor]]:
        """The weights (4 H, W) and biases (4 H,) that read what comes in, of both directions."""
        of = dict(self.lstm.named_parameters())
        return [(of[f"weight_ih_l0{way}"], of[f"bias_ih_l0{way}"]) for way in ("", "_reverse")]

    def forward(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        rows = nn.utils.rnn.pad_sequence(list(x.split(list(sizes))), batch_first=True)
        lengths = torch.tensor(sizes)
        packed = nn.utils.rnn.pack_padded_sequence(
            rows, lengths, batch_first=True, enforce_sorted=False
        )
        read, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        real = torch.arange(read.shape[1])[None] < lengths[:, None]
        return read[real.to(read.device)]
