"""Signals that hold layers of a student against layers of its teacher, all at once or one after
the other."""

from typing import Literal

from bertwright.compression.layer_map import LayerMap
from bertwright.compression.signals.signal import Comparison, Signal

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
        now = min(int(progress * number), number - 1)
        if self.order == "together":
            return range(number)
        return range(now if self.order == "in-turn" else 0, now + 1)


def state_name(layer: int) -> str:
    """The value that is a layer: 0 the embeddings, k what block k gives."""
    return f"blocks.{layer - 1}.residual" if layer else "embeddings.output"
