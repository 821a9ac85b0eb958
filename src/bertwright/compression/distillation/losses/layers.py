"""Distillation losses on pairs of layers, trained all at once or one after the other."""

import re
from typing import Generic, Literal, TypeVar

from pydantic import field_validator
from torch import Tensor

from bertwright.compression.distillation.losses.term import (
    BatchCounts,
    DistillationInputs,
    DistillationTerm,
    DistillationTermConfig,
)
from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.encoder.config import EncoderConfig

LayerMapRule = Literal["uniform", "last", "first"]

LAYER_SUBSETS = {"all": slice(None), "but-last": slice(-1), "last": slice(-1, None)}

_PAIR = re.compile(r"(\d+)-(\d+)")


class LayerMap(Settings):
    """A choice of (student, teacher) layer pairs.

    Layer 0 is the embeddings, layer k the output of block k.

    ``uniform`` pairs layer m of N with layer mL/N of L, ``last`` pairs the student's layers with
    the teacher's last ones, ``first`` with its first ones. ``pairs`` lists them explicitly: ``1-4
    2-8``. ``subset`` keeps all pairs, all but the last (Sun et al. 2019), or only the last (Sanh et
    al. 2019). ``embeddings`` adds the pair of embeddings (Jiao et al. 2020).
    """

    rule: LayerMapRule = "uniform"
    pairs: str | None = None
    subset: Literal["all", "but-last", "last"] = "all"
    embeddings: bool = False

    @field_validator("pairs")
    @classmethod
    def _check_pairs(cls, pairs: str | None) -> str | None:
        if pairs is not None and not all(_PAIR.fullmatch(pair) for pair in pairs.split()):
            raise ValueError(f"{pairs!r} is not a list of layer pairs: write such as 1-4 2-8")
        return pairs

    def layer_pairs(self, student_layers: int, teacher_layers: int) -> list[tuple[int, int]]:
        """Return the pairs for a student and a teacher with these numbers of layers.

        Raises UserError for a layer that does not exist, or if no pair is left.
        """
        if self.pairs is not None:
            pairs = [(int(a), int(b)) for a, b in _PAIR.findall(self.pairs)]
        else:
            pairs = [
                (m, self._teacher_layer(m, student_layers, teacher_layers))
                for m in range(1, student_layers + 1)
            ]
            pairs = pairs[LAYER_SUBSETS[self.subset]]
            pairs = [(0, 0), *pairs] if self.embeddings else pairs
        for layer, other in pairs:
            if layer > student_layers or not 0 <= other <= teacher_layers:
                raise UserError(
                    f"no layers {layer} and {other}: the student has {student_layers}, the teacher "
                    f"{teacher_layers}"
                )
        if not pairs:
            raise UserError(
                f"a student with {count_noun(student_layers, 'layer')} leaves no layer pair to "
                f"compare: take more --layers, or a method that compares others "
                f"(docs/how-to/compress.md)"
            )
        return pairs

    def _teacher_layer(self, layer: int, student_layers: int, teacher_layers: int) -> int:
        if self.rule == "uniform":
            return round(layer * teacher_layers / student_layers)
        return layer if self.rule == "first" else teacher_layers - student_layers + layer


class LayerLossConfig(DistillationTermConfig):
    """A distillation loss on layer pairs.

    Pairs are trained ``joint``; ``cumulative``, adding a pair in each of several equal intervals
    (Aguilar et al. 2020); or ``sequential``, with one pair per interval (Sun et al. 2020).
    """

    layers: LayerMap = LayerMap()
    order: Literal["joint", "cumulative", "sequential"] = "joint"

    def layer_pairs(self, student: EncoderConfig, teacher: EncoderConfig) -> list[tuple[int, int]]:
        """Return the layer pairs of two encoders; raise UserError if there are none."""
        depths = len(student.depth.sublayer_orders()), len(teacher.depth.sublayer_orders())
        return self.layers.layer_pairs(*depths)


LayerConfigT = TypeVar("LayerConfigT", bound=LayerLossConfig)


class LayerLoss(DistillationTerm, Generic[LayerConfigT]):
    """A base class of losses on layer pairs."""

    def __init__(self, config: LayerConfigT, pairs: list[tuple[int, int]]) -> None:
        super().__init__()
        self.config, self.pairs = config, pairs

    def active_pairs(self, fraction: float) -> range:
        """Return the indices of the pairs trained at a fraction of the training."""
        num_pairs = len(self.pairs)
        current = interval_index(fraction, num_pairs)
        if self.config.order == "joint":
            return range(num_pairs)
        return range(current if self.config.order == "sequential" else 0, current + 1)


class LayerStateLoss(LayerLoss[LayerConfigT]):
    """A base class of losses on the hidden states of layer pairs, at every real position."""

    def __init__(self, config: LayerConfigT, pairs: list[tuple[int, int]]) -> None:
        super().__init__(config, pairs)
        self.student_taps = [hidden_state_tap(layer) for layer, _ in pairs]
        self.teacher_taps = [hidden_state_tap(layer) for _, layer in pairs]

    def count(self, batch_counts: BatchCounts) -> float:
        return batch_counts.num_tokens

    def forward(self, inputs: DistillationInputs) -> Tensor:
        total = inputs.student_outputs.new_zeros(())
        for index in self.active_pairs(inputs.fraction):
            student = inputs.student_values[self.student_taps[index]]
            teacher = inputs.teacher_values[self.teacher_taps[index]]
            student = self.select_positions(student, inputs.attention_mask)
            teacher = self.select_positions(teacher, inputs.attention_mask)
            total = total + self.distance(index, student, teacher.float())
        return total

    def select_positions(self, hidden_states: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the states to compare, (M, D), from states (B, L, D)."""
        return hidden_states[attention_mask]

    def distance(self, pair_index: int, student_states: Tensor, teacher_states: Tensor) -> Tensor:
        """Return the distance between the states (M, D) of a layer pair, summed: 0-d."""
        raise TypeError(f"{type(self).__name__} does not implement distance")


def interval_index(fraction: float, num_intervals: int) -> int:
    """Return the index of the interval that a fraction of the training is in."""
    # The tolerance keeps a boundary such as 29/100 on its side of a rounded product.
    return min(int(fraction * num_intervals + 1e-9), num_intervals - 1)


def hidden_state_tap(layer: int) -> str:
    """Return the tap of a layer: layer 0 is the embeddings, layer k the output of block k."""
    return f"blocks.{layer - 1}.residual" if layer else "embeddings.output"
