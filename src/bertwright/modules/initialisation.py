"""Parameter initialisation.

Every parameter has its own generator, keyed by (seed, name), so adding a module does not change the
initial values of other parameters.
"""

from collections import Counter
from collections.abc import Collection
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.core.rng import parameter_stream, stream_key
from bertwright.modules.parameter_roles import ParameterRole, get_parameter_roles


class InitialisationConfig(Config):
    """The initialisation of parameters by normal random numbers.

    ``truncation`` is the number of standard deviations at which they are truncated (TensorFlow: 2);
    None for no truncation.
    """

    truncation: float | None = Field(default=None, gt=0)

    def std_of(self, weight: Tensor, role: ParameterRole, num_residual_writes: int) -> float:
        """Return the standard deviation of one parameter.

        ``num_residual_writes`` is the number of sublayers that write to its residual stream.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not an initialisation")


class PublishedInitialisationConfig(InitialisationConfig):
    """One standard deviation for all parameters (BERT: 0.02).

    ``scale_residual`` divides it for residual outputs, by the square root of the number of residual
    writes (GPT-2).
    """

    kind: Literal["published"] = "published"
    std: float = 0.02
    scale_residual: bool = False

    def std_of(self, weight: Tensor, role: ParameterRole, num_residual_writes: int) -> float:
        return self.std / (
            num_residual_writes**0.5 if role.writes_residual and self.scale_residual else 1.0
        )


class WidthAwareInitialisationConfig(InitialisationConfig):
    """Standard deviation 1/sqrt(fan-in), for the same initial scale of hidden states at any width.

    For residual outputs it is divided by the square root of the number of residual writes.
    """

    kind: Literal["width-aware"] = "width-aware"

    def std_of(self, weight: Tensor, role: ParameterRole, num_residual_writes: int) -> float:
        scale = _fan_in(weight, role) ** -0.5
        return scale * (num_residual_writes**-0.5 if role.writes_residual else 1.0)


class SmallInitialisationConfig(InitialisationConfig):
    """Standard deviation sqrt(2 / (5 D)) for a model of width D (Nguyen and Salazar 2019).

    For feed-forward matrices it is divided by sqrt(2 (1 + i)) in block i (Bajaj et al. 2022; Samuel
    et al. 2023).
    """

    kind: Literal["small"] = "small"
    truncation: float | None = Field(default=2.0, gt=0)

    def std_of(self, weight: Tensor, role: ParameterRole, num_residual_writes: int) -> float:
        width = weight.shape[0] if role.writes_residual else _fan_in(weight, role)
        variance = 2 / (5 * width)
        if role.depth is not None and (role.sublayer or "").startswith("feed_forward"):
            variance /= 2 * (1 + role.depth)
        return variance**0.5


class FanInInitialisationConfig(InitialisationConfig):
    """Standard deviation ``gain`` / sqrt(fan-in), and ``table`` or 1/sqrt(width) for tables (XLM).

    The default gain gives the variance of PyTorch's default, which is uniform instead of normal.
    """

    kind: Literal["fan-in"] = "fan-in"
    gain: float = Field(default=3**-0.5, gt=0.0)
    table: float | None = Field(default=None, gt=0.0)

    def std_of(self, weight: Tensor, role: ParameterRole, num_residual_writes: int) -> float:
        width = _fan_in(weight, role)
        if role.kind == "table" and role.fan_in is None:
            return width**-0.5 if self.table is None else self.table
        return self.gain * width**-0.5


def _fan_in(weight: Tensor, role: ParameterRole) -> int:
    return weight.shape[-1] if role.fan_in is None else role.fan_in


def _count_residual_writes(module: nn.Module) -> dict[str, int]:
    """Return how often all blocks that share a parameter's residual stream write to it."""
    roles = get_parameter_roles(module)
    first_names = {id(weight): name for name, weight in module.named_parameters()}
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    streams = Counter[str]()
    stream_of: dict[str, str] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        first = first_names[id(weight)]
        if roles[first].writes_residual:
            stream = _residual_stream(name, names)
            streams[stream] += 1
            stream_of.setdefault(first, stream)
    return {name: streams[stream] for name, stream in stream_of.items()}


def _residual_stream(name: str, names: Collection[str]) -> str:
    """Return the prefix of a parameter's residual stream; in a bottleneck this is its block."""
    before, blocks, after = name.partition("blocks.")
    if not blocks:
        return ""
    block = f"{before}{blocks}{after.partition('.')[0]}"
    output_projection = f"{block}.output_projection.weight"
    return block if output_projection in names and name != output_projection else before


@torch.no_grad()
def initialise(module: nn.Module, config: InitialisationConfig, seed: int) -> None:
    """Initialise every parameter of a module: norms to 1, biases to 0, others as configured."""
    roles, num_writes = get_parameter_roles(module), _count_residual_writes(module)
    for name, weight in module.named_parameters():
        role = roles[name]
        if role.kind == "norm":
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
        elif role.kind == "gate":
            weight.fill_(1.0)
        elif role.kind == "mixture":
            weight.zero_()[-1] = 1.0
        elif role.kind == "bias":
            weight.zero_()
        else:
            std = config.std_of(weight, role, num_writes.get(name, 1))
            random_key = stream_key(seed, "initialisation", parameter_stream(name))
            fill_normal(weight, std, config.truncation, random_key)
            weight[: len(weight) // role.num_parts] *= role.first_part_scale


@torch.no_grad()
def fill_normal(weight: Tensor, std: float, truncation: float | None, random_key: int) -> None:
    """Fill a parameter with normal numbers, drawn on the CPU so that devices do not differ."""
    generator = torch.Generator().manual_seed(random_key >> 1)
    values = torch.empty(weight.numel()).normal_(0.0, std, generator=generator)
    if truncation:
        # Only what lies outside is drawn again; PyTorch's function draws all numbers several times.
        bound = truncation * std
        outside = (values.abs() > bound).nonzero()[:, 0]
        while len(outside):
            redrawn = torch.empty(len(outside)).normal_(0.0, std, generator=generator)
            values[outside] = redrawn
            outside = outside[redrawn.abs() > bound]
    weight.copy_(values.view_as(weight))
