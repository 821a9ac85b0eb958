"""Batches: sequences of a source, with the targets of all objectives of a step."""

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

    - ``token_ids``: (B, L) int32, the input of the encoder, after masking
    - ``targets``: the targets of each objective, by name
    - ``num_tokens``: the number of real tokens, special tokens included
    - ``first_sequence``: the index of this batch's first sequence in the global batch
    - ``continues_previous``: True if every sequence continues the one at its index in the previous
      batch
    - ``teacher_batch``: the same text, tokenized for a teacher; None without a teacher
    """

    token_ids: Int32Array
    token_info: TokenInfoArrays
    targets: dict[str, Targets]
    num_tokens: int
    first_sequence: int = 0
    continues_previous: bool = False
    teacher_batch: "Batch | None" = None

    def masked_counts(self, objective: str) -> tuple[float, float]:
        """Return the number of masked tokens of an objective, and the number of real tokens."""
        targets = self.targets[objective]
        if targets.masked_counts is not None:
            return targets.masked_counts
        return float(targets.weights.sum()), float(self.num_tokens)


TargetMaker = Callable[
    [SequenceBatch, IntArray, IntArray, Mapping[str, Targets]], tuple[SequenceBatch, Targets]
]
"""Function from sequences, epochs, indices and earlier targets to masked sequences and targets."""


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

    Objectives mask in order: each receives the sequences that the one before it has masked. Tokens
    that are reserved in the ``vocabulary`` are neither masked nor predicted.
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
