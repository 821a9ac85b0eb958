"""What a teacher has in its layers: states, through a map where the student is narrower."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.compression.signals.by_layer import LayerSignal, OfStateLayers, Order
from bertwright.compression.signals.signal import Comparison, Sizes
from bertwright.encoder.choice import EncoderChoice
from bertwright.errors import UserError
from bertwright.randomness import key


class States(LayerSignal):
    """States of layers, summed over their pairs, in the mean over ``places``: all, or the first.

    ``squared`` is the mean over the width of the squared difference, ``cosine`` 1 less the cosine.
    Before it, states are divided by their ``length`` (Sun et al. 2019) or brought to mean 0 and
    deviation 1 (``deviation``; Sun et al. 2020). Where widths differ, a linear map learns to lead
    from the one to the other: ``shared`` by all layers (Jiao et al. 2020, the code) or one for
    ``each``.
    """

    kind: Literal["states"] = "states"
    places: Literal["all", "first"] = "all"
    distance: Literal["squared", "cosine"] = "squared"
    divided: Literal["length", "deviation"] | None = None
    map: Literal["shared", "each"] = "shared"

    def between(self, student: EncoderChoice, teacher: EncoderChoice) -> Comparison:
        pairs = self.layers.between(len(student.widths) - 1, len(teacher.widths) - 1)
        wide = [(student.widths[own], teacher.widths[other]) for own, other in pairs]
        maps: list[nn.Module] | None = None
        if any(own != other for own, other in wide):
            if self.map == "shared" and len(set(wide)) > 1:
                raise UserError(
                    "states: layers of several widths have no map in common: set map to each"
                )
            maps = [nn.Linear(*own) for own in (wide[:1] if self.map == "shared" else wide)]
        return OfStates(self, self.order, pairs, maps)


class OfStates(OfStateLayers):
    """Of :class:`States`; ``maps`` are one or as many as pairs, None where widths are equal."""

    def __init__(
        self,
        choice: States,
        order: Order,
        pairs: list[tuple[int, int]],
        maps: list[nn.Module] | None,
    ) -> None:
        super().__init__(order, pairs)
        self.choice = choice
        self.maps = None if maps is None else nn.ModuleList(maps)

    def begin(self, seed: int) -> None:
        for number, own in enumerate(self.maps or ()):
            assert isinstance(own, nn.Linear)
            generator = torch.Generator().manual_seed(key(seed, "states", number) >> 1)
            drawn = torch.randn(own.weight.shape, generator=generator)
            own.weight.data.copy_(drawn * own.in_features**-0.5)
            own.bias.data.zero_()

    def count(self, sizes: Sizes) -> float:
        return sizes.rows if self.choice.places == "first" else super().count(sizes)

    def read(self, states: Tensor, real: Tensor) -> Tensor:
        return (
            states[real[:, 0], 0] if self.choice.places == "first" else super().read(states, real)
        )

    def apart(self, number: int, own: Tensor, others: Tensor) -> Tensor:
        own = (own if self.maps is None else self.maps[number % len(self.maps)](own)).float()
        if self.choice.distance == "cosine":
            return (1 - F.cosine_similarity(own, others, dim=-1)).sum()
        if self.choice.divided == "length":
            own, others = F.normalize(own, dim=-1), F.normalize(others, dim=-1)
        elif self.choice.divided == "deviation":
            own, others = (F.layer_norm(each, each.shape[-1:]) for each in (own, others))
        return (own - others).square().mean(-1).sum()
