"""Where a teacher looks: its scores, or its weights."""

from typing import Literal

from torch import Tensor

from bertwright.compression.signals.by_layer import LayerSignal, OfLayers
from bertwright.compression.signals.signal import Comparison, Heard, Sizes
from bertwright.encoder.choice import EncoderChoice
from bertwright.errors import UserError


class AttentionMaps(LayerSignal):
    """Attention of layers, summed over their pairs, in the mean over rows.

    Of a row, ``scores`` are the mean squared difference of the scores of all heads and of all pairs
    of its places that the teacher lets see each other (Jiao et al. 2020), ``weights`` the mean of
    KL(teacher || student) over heads and places (Aguilar et al. 2020). Where the two have unlike
    numbers of heads, what is compared are the means over them.
    """

    kind: Literal["attention"] = "attention"
    of: Literal["scores", "weights"] = "scores"

    def between(self, student: EncoderChoice, teacher: EncoderChoice) -> Comparison:
        depths = len(student.depth.orders()), len(teacher.depth.orders())
        pairs = [(own, other) for own, other in self.layers.between(*depths) if own and other]
        if not pairs:
            raise UserError(
                "attention: the embeddings (layer 0) look at nothing: name layers of blocks"
            )
        return OfAttention(self, pairs)


class OfAttention(OfLayers):
    """Of :class:`AttentionMaps`."""

    def __init__(self, choice: AttentionMaps, pairs: list[tuple[int, int]]) -> None:
        super().__init__(choice.order, pairs)
        self.choice = choice
        names = ["weights"] if choice.of == "weights" else ["weights", "scores"]
        own, others = zip(*self.pairs, strict=True)
        self.sites = [f"blocks.{n - 1}.attention.{name}" for n in own for name in names]
        self.other_sites = [f"blocks.{n - 1}.attention.{name}" for n in others for name in names]

    def count(self, sizes: Sizes) -> float:
        return sizes.rows

    def forward(self, heard: Heard) -> Tensor:
        total = heard.outputs.new_zeros(())
        for number in self.active(heard.progress):
            at, there = (f"blocks.{layer - 1}.attention" for layer in self.pairs[number])
            own, others = _alike(
                heard.own[f"{at}.{self.choice.of}"], heard.others[f"{there}.{self.choice.of}"]
            )
            seen = heard.others[f"{there}.weights"] > 0
            total = total + self._distance(own, others, seen, heard.real)
        return total

    def _distance(self, own: Tensor, others: Tensor, seen: Tensor, real: Tensor) -> Tensor:
        """Of (B, H, L, L), summed over the rows."""
        pairs = real[:, None, :, None] & real[:, None, None, :] & seen.any(1, keepdim=True)
        if self.choice.of == "scores":
            apart = (own - others).square().masked_fill(~pairs, 0.0)
            number = pairs.sum((1, 2, 3)).clamp(min=1)
        else:
            logs = others.clamp(min=1e-12).log() - own.clamp(min=1e-12).log()
            apart = (others * logs).masked_fill(~pairs, 0.0)
            number = real.sum(1).clamp(min=1)
        return (apart.sum((1, 2, 3)) / (number * own.shape[1])).sum()


def _alike(own: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Both with as many heads, in float32."""
    own, others = own.float(), others.float()
    if own.shape[1] == others.shape[1]:
        return own, others
    return own.mean(1, keepdim=True), others.mean(1, keepdim=True)
