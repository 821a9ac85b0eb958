"""The loss of a fine-tuned model on examples of its task, per item."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel, flat_positions
from bertwright.tasks.finetuning.batches import collate
from bertwright.tasks.finetuning.encoded_task import EncodedTask, target_dtype
from bertwright.tasks.formats.examples import Examples

Floats = NDArray[np.float64]


class TaskModelInputs(NamedTuple):
    """The inputs of a task model.

    Token ids (B, L) int64 with their token info, the flat output positions (M,), None for a model
    that classifies sequences, and the number of outputs of each sequence.
    """

    token_ids: Tensor
    token_info: TokenInfo
    positions: Tensor | None
    output_lengths: Sequence[int]


@dataclass(frozen=True)
class ExampleBatch:
    """A batch of labelled items for a model."""

    model: FineTunedModel
    part: EncodedTask
    items: Sequence[int]

    def inputs(self) -> TaskModelInputs:
        """Return the inputs of the task model."""
        sequences = [sequence for item in self.items for sequence in self._sequences(item)]
        length = max(len(sequence.token_ids) for sequence in sequences)
        token_ids, token_info = collate(sequences, length, self.model)
        positions = None
        if self.part.task.output_type.level == "token":
            positions = flat_positions(sequences, length).to(self.model.device)
        output_lengths = [self._num_outputs(sequence) for sequence in sequences]
        return TaskModelInputs(token_ids, token_info, positions, output_lengths)

    def num_sequences(self) -> list[int]:
        """Return the number of sequences of each item."""
        return [len(self._sequences(item)) for item in self.items]

    def losses(self) -> Iterator[tuple[Tensor, int]]:
        """Yield the training loss of each item, summed over its targets, and their number.

        Dropout is off. Items compared with each other yield one loss for all of them.
        """
        outputs = self.part.output_decoder.to_training_scale(self.model.task_model(*self.inputs()))
        sizes = [
            sum(self._num_outputs(sequence) for sequence in self._sequences(item))
            for item in self.items
        ]
        if self.part.task.output_type.has_in_batch_negatives:
            yield self._loss(outputs, sizes, self.items)
            return
        bounds = pairwise(accumulate(sizes, initial=0))
        for item, (start, end) in zip(self.items, bounds, strict=True):
            yield self._loss(outputs[start:end], [end - start], [item])

    def total(self) -> tuple[Tensor, int]:
        """Return the loss of all items, 0-d, and the number of their targets."""
        sums, counts = zip(*self.losses(), strict=True)
        return torch.stack(sums).sum(), sum(counts)

    def _sequences(self, item: int) -> list[TaskSequence]:
        return [self.part.sequences[index] for index in self.part.items[item]]

    def _num_outputs(self, sequence: TaskSequence) -> int:
        return self.part.output_decoder.output_length(sequence)

    def _loss(
        self, outputs: Tensor, output_lengths: Sequence[int], items: Sequence[int]
    ) -> tuple[Tensor, int]:
        targets = [target for item in items for target in self.part.targets[item]]
        labels = torch.tensor(targets, dtype=target_dtype(self.part), device=outputs.device)
        return self.part.output_decoder.loss(outputs, output_lengths, labels)[0], len(targets)


def example_batches(
    model: FineTunedModel, examples: Examples, batch_size: int
) -> list[ExampleBatch]:
    """Return labelled examples in batches of at most ``batch_size`` items."""
    part = EncodedTask.encode(model.task, examples, examples, model.example_encoder)
    items = range(len(part.items))
    return [
        ExampleBatch(model, part, items[start : start + batch_size])
        for start in range(0, len(items), batch_size)
    ]


@torch.no_grad()
def losses_and_counts(batches: Sequence[ExampleBatch]) -> tuple[Floats, Floats]:
    """Return the loss of every item and the number of its targets, (N,) each."""
    losses = [(float(loss), count) for batch in batches for loss, count in batch.losses()]
    sums, counts = np.array(losses, np.float64).T
    return sums, counts


def mean_loss(batches: Sequence[ExampleBatch]) -> float:
    """Return the mean loss over all targets, in nats for outputs with probabilities."""
    sums, counts = losses_and_counts(batches)
    return float(sums.sum() / counts.sum())
