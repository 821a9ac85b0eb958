"""LoRA (Hu et al. 2022): weights W + (alpha / rank) B A, where only A and B are trained.

The encoder computes with the sum of both, so LoRA works for every kind of encoder, and the result
is stored as ordinary weights.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bertwright.core.rng import parameter_stream, stream_key
from bertwright.encoder.encoder import Encoder
from bertwright.modules.parameter_roles import ParameterRole, get_parameter_roles
from bertwright.tasks.adapters.parametrisation import WeightParametrisation


class LoraParametrisation(WeightParametrisation):
    """The factors A and B for all matrices in the selected sublayers of an encoder.

    Matrices stored in one tensor, such as queries, keys and values, have a pair of factors each.
    """

    def __init__(self, encoder: Encoder, rank: int, alpha: float, sublayers: Sequence[str]) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.matrix_names = matrix_names(encoder, sublayers)
        parameters, roles = dict(encoder.named_parameters()), get_parameter_roles(encoder)
        self.down, self.up = nn.ParameterList(), nn.ParameterList()
        for name in self.matrix_names:
            rows, columns = parameters[name].shape
            parts = roles[name].num_parts
            self.down.append(nn.Parameter(torch.empty(parts, rank, columns)))
            self.up.append(nn.Parameter(torch.empty(parts, rows // parts, rank)))

    @property
    def max_rank(self) -> int:
        """The highest rank that an update can have."""
        pairs = zip(self.up, self.down, strict=True)
        return max(min(up.shape[1], down.shape[2]) for up, down in pairs)

    @property
    def parameter_roles(self) -> dict[str, ParameterRole]:
        """Roles of A and B: matrices."""
        return {name: ParameterRole("matrix") for name, _ in self.named_parameters()}

    @torch.no_grad()
    def init_parameters(self, seed: int, weights: Mapping[str, Tensor]) -> None:
        """Draw A at random and set B to zero, so that the encoder is unchanged at first."""
        for name, down, up in zip(self.matrix_names, self.down, self.up, strict=True):
            generator = torch.Generator().manual_seed(
                stream_key(seed, "low-rank", parameter_stream(name)) >> 1
            )
            down.copy_(torch.randn(down.shape, generator=generator) * down.shape[-1] ** -0.5)
            up.zero_()

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: _add_update(weights[name], self.scale * torch.bmm(up.float(), down.float()))
            for name, down, up in zip(self.matrix_names, self.down, self.up, strict=True)
        }


def matrix_names(encoder: Encoder, sublayers: Sequence[str]) -> list[str]:
    """Return the names of the matrices in these sublayers of all blocks."""
    roles, parameters = get_parameter_roles(encoder), dict(encoder.named_parameters())
    return [
        name
        for name, role in roles.items()
        if role.kind == "matrix"
        and (role.sublayer or "").startswith(tuple(sublayers))
        and parameters[name].dim() == 2
        and ".adapters." not in name
    ]


def _add_update(weight: Tensor, update: Tensor) -> Tensor:
    return (weight.float() + update.flatten(0, 1)).to(weight.dtype)
