"""Signals that hold layers of a student against layers of its teacher, all at once or one after
the other."""

from typing import Literal

from torch import Tensor

from bertwright.compression.layer_map import LayerMap
from bertwright.compression.signals.signal import Comparison, Heard, Signal, Sizes

Order = Literal["together", "upwards", "in-turn"]


class LayerSignal(Signal):
    """``layers`` says which are held against which. They are learned ``together``; ``upwards``,
    where one more joins in each equal part of the time (Aguilar et al. 2020); or ``in-turn``, each
    in its part alone (Sun et al. 2020)."""

    layers: LayerMap = LayerMap()
    order: Order = "together"


class OfLayers(Comparison):
    """What such comparisons share; ``pairs`` are those of the layers."""

    def __init__(self, order: Order, pairs: list[tuple[int, int]]) -> None:
        super().__init__()
        self.order, self.pairs = order, pairs

    def active(self, progress: float) -> range:
        """The indices of the pairs that are learned now."""
        number = len(self.pairs)
        now = turn_of(progress, number)
        if self.order == "together":
            return range(number)
        return range(now if self.order == "in-turn" else 0, now + 1)


class OfStateLayers(OfLayers):
    """Of layers by their states, at every place that is real."""

    def __init__(self, order: Order, pairs: list[tuple[int, int]]) -> None:
        super().__init__(order, pairs)
        self.sites = [state_name(own) for own, _ in pairs]
        self.other_sites = [state_name(other) for _, other in pairs]

    def count(self, sizes: Sizes) -> float:
        return sizes.places

    def forward(self, heard: Heard) -> Tensor:
        total = heard.outputs.new_zeros(())
        for number in self.active(heard.progress):
            own = self.read(heard.own[self.sites[number]], heard.real)
            others = self.read(heard.others[self.other_sites[number]], heard.real)
            total = total + self.apart(number, own, others.float())
        return total

    def read(self, states: Tensor, real: Tensor) -> Tensor:
        """States (B, L, D) to those that are compared, (M, D)."""
        return states[real]

    def apart(self, number: int, own: Tensor, others: Tensor) -> Tensor:
        """How far the states (M, D) of a pair of layers are from each other, summed: 0-d."""
        raise TypeError(f"{type(self).__name__} compares nothing")


def turn_of(progress: float, number: int) -> int:
    """Which of so many equal parts of the time it is at a progress, from 0 to 1."""
    # The tolerance keeps a boundary such as 29/100 on its side of a rounded product.
    return min(int(progress * number + 1e-9), number - 1)


def state_name(layer: int) -> str:
    """The value that is a layer: 0 the embeddings, k what block k gives."""
    return f"blocks.{layer - 1}.residual" if layer else "embeddings.output"
