"""Layers of task heads other than linear ones."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.modules.parameter_roles import NORM_ROLES, ParameterRole

HeadMix = Literal["concat", "sum", "mean", "learned"]
HeadNorm = Literal["none", "layer", "batch", "isotropic"]


class DenseActivation(nn.Module):
    """A dense layer with an activation: (M, D) to (M, D)."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class BatchNorm(nn.Module):
    """A batch norm of pooled states (M, D) (Ioffe and Szegedy 2015).

    In training it normalises by the statistics of the batch, and by the running ones where a batch
    has a single row, which has no variance. Statistics are in float32.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = NORM_ROLES
    momentum: ClassVar[float] = 0.1
    epsilon: ClassVar[float] = 1e-5

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def reset_statistics(self) -> None:
        """Forget the statistics of earlier batches."""
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        normed = nn.functional.batch_norm(
            x.float(),
            self.running_mean,
            self.running_var,
            self.weight.float(),
            self.bias.float(),
            self.training and len(x) > 1,
            self.momentum,
            self.epsilon,
        )
        return normed.to(x.dtype)


class IsotropicBatchNorm(nn.Module):
    """A batch norm of pooled states (M, D) that scales down correlated units (IsoBN).

    Unit i is scaled by theta_i = (sigma_i gamma_i + epsilon)^-beta, where sigma_i is its standard
    deviation and gamma_i the mean of its squared correlations with all units, and then all units by
    one factor that keeps the total variance. The statistics are moving averages over the batches of
    training; a batch with a single row has none. It has no parameters. Source: Zhou et al. 2021.
    """

    momentum: ClassVar[float] = 0.05
    epsilon: ClassVar[float] = 1e-3
    beta: ClassVar[float] = 0.5

    def __init__(self, width: int) -> None:
        super().__init__()
        self.running_std: Tensor
        self.running_cov: Tensor
        self.register_buffer("running_std", torch.zeros(width))
        self.register_buffer("running_cov", torch.zeros(width, width))

    def reset_statistics(self) -> None:
        """Forget the statistics of earlier batches."""
        self.running_std.zero_()
        self.running_cov.zero_()

    @torch.no_grad()
    def update_statistics(self, x: Tensor) -> None:
        """Update the moving averages with a batch (M, D)."""
        centred = x.float() - x.float().mean(0)
        covariance = centred.T @ centred / len(x)
        self.running_std.lerp_(covariance.diagonal().sqrt(), self.momentum)
        self.running_cov.lerp_(covariance, self.momentum)

    @torch.no_grad()
    def scale(self) -> Tensor:
        """Return the scale (D,) of the units."""
        std, variance = self.running_std, self.running_cov.diagonal()
        products = torch.outer(std, std).clamp(min=torch.finfo(torch.float32).tiny)
        gamma = (self.running_cov / products).clamp(-1.0, 1.0).square().mean(1)
        theta = (std * gamma + self.epsilon) ** -self.beta
        total, scaled = variance.sum(), (variance * theta.square()).sum()
        return theta * (total / scaled).sqrt() if scaled > 0 else torch.ones_like(theta)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > 1:
            self.update_statistics(x.detach())
        return (x.float() * self.scale()).to(x.dtype)


class LayerMix(nn.Module):
    """A sum, mean or learned mix of encoder layers: (M, r n D) to (M, r D).

    r is the number of pooled vectors, n the number of layers. The learned mix is gain * sum_j
    softmax(weights)_j layer_j; weights start equal, with gain 1. If ``is_normed``, each layer is
    normalised first (Peters et al. 2018, equation 1).
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "weights": ParameterRole("bias"),
        "gain": ParameterRole("gate"),
    }

    def __init__(
        self, mode: HeadMix, num_layers: int, num_poolings: int, is_normed: bool = False
    ) -> None:
        super().__init__()
        self.mode, self.num_layers, self.num_poolings = mode, num_layers, num_poolings
        self.is_normed = is_normed
        if mode == "learned":
            self.weights, self.gain = (
                nn.Parameter(torch.zeros(num_layers)),
                nn.Parameter(torch.ones(1)),
            )

    def forward(self, x: Tensor) -> Tensor:
        layers = x.view(x.shape[0], self.num_poolings, self.num_layers, -1)
        if self.is_normed:
            layers = nn.functional.layer_norm(layers, layers.shape[-1:])
        if self.mode == "learned":
            weights = torch.softmax(self.weights, 0)[:, None]
            return (self.gain * (layers * weights).sum(2)).flatten(1)
        return (layers.sum(2) if self.mode == "sum" else layers.mean(2)).flatten(1)


class WordBiLSTM(nn.Module):
    """A bidirectional LSTM over the words of each sequence: (M, W) to (M, 2 H).

    Of the ``input_size`` inputs, the first ``num_features`` are features of the encoder.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, num_features: int
    ) -> None:
        super().__init__()
        self.num_features = num_features
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
        """Return weights (4 H, F) and biases (4 H,) of the input features, both directions."""
        lstm: Any = self.lstm
        return [
            (lstm.weight_ih_l0[:, : self.num_features], lstm.bias_ih_l0),
            (lstm.weight_ih_l0_reverse[:, : self.num_features], lstm.bias_ih_l0_reverse),
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
