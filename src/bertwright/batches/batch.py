"""Batches: sequences of a source with the targets of every objective of a step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bertwright.batches.arrays import Int32Array, IntArray
from bertwright.batches.formats import SequenceSource
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch, TokenInfoArrays
from bertwright.batches.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The input of one process for one forward pass.

    - ``token_ids``: (B, L) int32, as the encoder sees them
    - ``targets``: by objective name
    - ``num_tokens``: real tokens, special ones included
    - ``first_sequence``: index of sequence 0 in the global batch
    - ``continues_previous``: True if every sequence continues that of the batch before it
    - ``teacher_batch``: the same text tokenized for another network; None without one
    """

    token_ids: Int32Array
    token_info: TokenInfoArrays
    targets: dict[str, Targets]
    num_tokens: int
    first_sequence: int = 0
    continues_previous: bool = False
    teacher_batch: "Batch | None" = None

    def masked_counts(self, objective: str) -> tuple[float, float]:
        """Return the numbers of masked and of real tokens."""
        targets = self.targets[objective]
        if targets.masked_counts is not None:
            return targets.masked_counts
        return float(targets.weights.sum()), float(self.num_tokens)


TargetMaker = Callable[
    [SequenceBatch, IntArray, IntArray, Mapping[str, Targets]], tuple[SequenceBatch, Targets]
]
"""Masks and labels sequences, given their epochs, their indices, and the targets made before."""


def make_batch(
    source: SequenceSource,
    index: IntArray,
    epoch: IntArray,
    target_makers: Mapping[str, TargetMaker],
    first_sequence: int = 0,
    continues_previous: bool = False,
    vocabulary: Vocabulary | None = None,
) -> Batch:
    """Return sequences ``index`` (B,) of a source, each at its ``epoch`` (B,), with all targets.

    Objectives mask in order, each seeing the sequences as the one before left them. None masks or
    predicts a token that is reserved in the ``vocabulary``.
    """
    batch = source.sequences(index, epoch)
    if vocabulary is not None and vocabulary.reserved:
        batch = replace(
            batch, is_special=batch.is_special | vocabulary.is_reserved[batch.token_ids]
        )
    targets: dict[str, Targets] = {}
    for name, make_targets in target_makers.items():
        batch, targets[name] = make_targets(batch, epoch, index, targets)
    num_tokens = int(batch.is_real.sum())
    return Batch(
        batch.token_ids, batch.token_info, targets, num_tokens, first_sequence, continues_previous
    )
