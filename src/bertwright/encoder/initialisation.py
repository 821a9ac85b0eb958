"""Where parameters start: an axis, because in the first minutes it decides.

Each parameter is drawn by a generator of its own, keyed by (seed, name): a model that has one part
more starts all its other parts at the same values.
"""

from collections import Counter
from collections.abc import Collection
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.roles import Role, roles
from bertwright.randomness import key


class Initialisation(Choice):
    """The axis: the standard deviation of every matrix and table, cut off at so many of it."""

    cut: float | None = Field(default=None, gt=0)

    def deviation(self, weight: Tensor, role: Role, num_residual: int) -> float:
        """The deviation for one parameter; ``num_residual`` things write to the residual stream
        that it writes to, if it does."""
        raise TypeError(f"{type(self).__name__} is an axis, not an initialisation")


class Published(Initialisation):
    """The same deviation for everything (BERT: 0.02; GPT-2 scales residual outputs down).

    ``cut`` truncates at that many deviations, as TensorFlow's initialiser does at 2.
    """

    kind: Literal["published"] = "published"
    std: float = 0.02
    scale_residual: bool = False

    def deviation(self, weight: Tensor, role: Role, num_residual: int) -> float:
        return self.std / (num_residual**0.5 if role.residual and self.scale_residual else 1.0)


class WidthAware(Initialisation):
    """1/sqrt(fan-in) for matrices, so that every width starts with states of the same size.

    Residual outputs are divided by the root of the number of residual writes.
    """

    kind: Literal["width-aware"] = "width-aware"

    def deviation(self, weight: Tensor, role: Role, num_residual: int) -> float:
        scale = _fan_in(weight, role) ** -0.5
        return scale * (num_residual**-0.5 if role.residual else 1.0)


class Small(Initialisation):
    """sqrt(2 / (5 D)), D the width of the model (Nguyen and Salazar 2019); matrices of a
    feed-forward are divided by sqrt(2 (1 + i)) in block i (Bajaj et al. 2022; Samuel et al. 2023).
    """

    kind: Literal["small"] = "small"
    cut: float | None = Field(default=2.0, gt=0)

    def deviation(self, weight: Tensor, role: Role, num_residual: int) -> float:
        width = weight.shape[0] if role.residual else _fan_in(weight, role)
        variance = 2 / (5 * width)
        if role.depth is not None and (role.sublayer or "").startswith("feed_forward"):
            variance /= 2 * (1 + role.depth)
        return variance**0.5


class FanIn(Initialisation):
    """``gain`` / sqrt(fan-in) for every matrix, by default as large as PyTorch starts its own
    modules (there uniform, here normal), and 1/sqrt(width) for tables (XLM), or ``table``."""

    kind: Literal["fan-in"] = "fan-in"
    gain: float = Field(default=3**-0.5, gt=0.0)
    table: float | None = Field(default=None, gt=0.0)

    def deviation(self, weight: Tensor, role: Role, num_residual: int) -> float:
        width = _fan_in(weight, role)
        if role.kind == "table" and role.fan_in is None:
            return width**-0.5 if self.table is None else self.table
        return self.gain * width**-0.5


def _fan_in(weight: Tensor, role: Role) -> int:
    return weight.shape[-1] if role.fan_in is None else role.fan_in


def _residual_writes(module: nn.Module) -> dict[str, int]:
    """By the name of every parameter that writes to a residual stream, how many times that stream
    is written to: what several blocks share writes once in each."""
    of = roles(module)
    first_names = {id(weight): name for name, weight in module.named_parameters()}
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    streams = Counter[str]()
    stream_of: dict[str, str] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        first = first_names[id(weight)]
        if of[first].residual:
            stream = _stream(name, names)
            streams[stream] += 1
            stream_of.setdefault(first, stream)
    return {name: streams[stream] for name, stream in stream_of.items()}


def _stream(name: str, names: Collection[str]) -> str:
    """The residual stream that a parameter writes to: that of the blocks it is of, or within a
    bottleneck that of its own block."""
    before, blocks, inside = name.partition("blocks.")
    if not blocks:
        return ""
    block = f"{before}{blocks}{inside.partition('.')[0]}"
    way_out = f"{block}.out.weight"
    return block if way_out in names and name != way_out else before


@torch.no_grad()
def initialise(module: nn.Module, choice: Initialisation, seed: int) -> None:
    """Draw every parameter of a module: norms 1, biases 0, the rest as the choice says."""
    of, num_residual = roles(module), _residual_writes(module)
    for name, weight in module.named_parameters():
        role = of[name]
        if role.kind == "norm":
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
        elif role.kind == "gate":
            weight.fill_(1.0)
        elif role.kind == "mixture":
            weight.zero_()[-1] = 1.0
        elif role.kind == "bias":
            weight.zero_()
        else:
            deviation = choice.deviation(weight, role, num_residual.get(name, 1))
            draw(weight, deviation, choice.cut, key(seed, "initialisation", name))
            weight[: len(weight) // role.parts] *= role.first_part


@torch.no_grad()
def draw(weight: Tensor, deviation: float, cut: float | None, word: int) -> None:
    """Fill a parameter with normal numbers, none further out than ``cut`` deviations unless it is
    None; ``word`` says which. They are drawn on the processor: the same ones for every device."""
    generator = torch.Generator().manual_seed(word >> 1)
    drawn = torch.empty_like(weight, device="cpu")
    if cut:
        bound = cut * deviation
        nn.init.trunc_normal_(drawn, 0.0, deviation, -bound, bound, generator)
    else:
        nn.init.normal_(drawn, 0.0, deviation, generator)
    weight.copy_(drawn)
