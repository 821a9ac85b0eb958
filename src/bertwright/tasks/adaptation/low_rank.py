"""Low-rank changes of matrices (Hu et al. 2022): W + (alpha / rank) B A, of which A and B learn.

The encoder computes with the sum and knows nothing of it, so every kind of encoder can be adapted
so, and what was learned becomes plain weights.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.roles import Role, roles
from bertwright.randomness import key
from bertwright.tasks.adaptation.changes import Changes


class LowRankChanges(Changes):
    """A and B of all matrices in these sublayers of an encoder.

    Several matrices that are stored in one, as queries, keys and values are, have one pair each.
    """

    def __init__(self, encoder: Encoder, rank: int, alpha: float, sublayers: Sequence[str]) -> None:
        super().__init__()
        self.scale = alpha / rank
        self.names = matrices_of(encoder, sublayers)
        known, of = dict(encoder.named_parameters()), roles(encoder)
        self.down, self.up = nn.ParameterList(), nn.ParameterList()
        for name in self.names:
            rows, columns = known[name].shape
            parts = of[name].parts
            self.down.append(nn.Parameter(torch.empty(parts, rank, columns)))
            self.up.append(nn.Parameter(torch.empty(parts, rows // parts, rank)))

    @property
    def whole_rank(self) -> int:
        """The most that a change of these matrices can have."""
        pairs = zip(self.up, self.down, strict=True)
        return max(min(up.shape[1], down.shape[2]) for up, down in pairs)

    @property
    def parameter_roles(self) -> dict[str, Role]:
        """A and B are matrices."""
        return {name: Role("matrix") for name, _ in self.named_parameters()}

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        """A is drawn, B is zero: nothing has changed yet."""
        for name, down, up in zip(self.names, self.down, self.up, strict=True):
            generator = torch.Generator().manual_seed(key(seed, "low-rank", name) >> 1)
            down.copy_(torch.randn(down.shape, generator=generator) * down.shape[-1] ** -0.5)
            up.zero_()

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: _sum(weights[name], self.scale * torch.bmm(up.float(), down.float()))
            for name, down, up in zip(self.names, self.down, self.up, strict=True)
        }


def matrices_of(encoder: Encoder, sublayers: Sequence[str]) -> list[str]:
    """The matrices in these sublayers of all blocks, by name."""
    of, known = roles(encoder), dict(encoder.named_parameters())
    return [
        name
        for name, role in of.items()
        if role.kind == "matrix"
        and (role.sublayer or "").startswith(tuple(sublayers))
        and known[name].dim() == 2
        and ".adapters." not in name
    ]


def _sum(weight: Tensor, change: Tensor) -> Tensor:
    return (weight.float() + change.flatten(0, 1)).to(weight.dtype)
