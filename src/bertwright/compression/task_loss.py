"""The loss of a fine-tuned model on examples of its task, item by item."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.batches import TaskBatch, build_task_batch
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs.text.generated import GeneratedOutput

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ExampleBatch:
    """A batch of labelled items for a model."""

    model: FineTunedModel
    part: EncodedTask
    items: Sequence[int]

    def batch(self) -> TaskBatch:
        """Return the inputs of the task model, and the targets."""
        indices = [index for item in self.items for index in self.part.items[item]]
        length = max(len(self.part.sequences[index].token_ids) for index in indices)
        return build_task_batch(self.part, self.items, length, self.model)

    def num_sequences(self) -> list[int]:
        """Return the number of sequences of each item."""
        return [len(self.part.items[item]) for item in self.items]

    def losses(self) -> Iterator[tuple[Tensor, int]]:
        """Yield for each item the training loss, summed over its targets, and their number.

        Dropout is off. Items that are compared with each other yield a single loss for all of them.
        """
        batch, decoder = self.batch(), self.part.output_decoder
        outputs = decoder.to_training_scale(
            self.model.task_model(
                batch.token_ids, batch.token_info, batch.positions, batch.output_lengths
            )
        )
        sizes, counts = batch.item_output_lengths, [len(self.part.targets[n]) for n in self.items]
        if self.part.task.output_type.has_in_batch_negatives:
            yield decoder.loss(outputs, sizes, batch.targets)[0], sum(counts)
            return
        parts = outputs.split(list(sizes)), batch.targets.split(counts), sizes, counts
        for item_outputs, targets, size, count in zip(*parts, strict=True):
            yield decoder.loss(item_outputs, [size], targets)[0], count

    def total(self) -> tuple[Tensor, int]:
        """Return the loss of all items, 0-d, and the total number of targets."""
        sums, counts = zip(*self.losses(), strict=True)
        return torch.stack(sums).sum(), sum(counts)


def example_batches(
    model: FineTunedModel, examples: Examples, batch_size: int
) -> list[ExampleBatch]:
    """Return labelled examples in batches of at most ``batch_size`` items.

    Raises UserError for a model that generates text.
    """
    (batches,) = example_subsets(model, examples, batch_size, 1)
    return batches


def example_subsets(
    model: FineTunedModel, examples: Examples, batch_size: int, num_subsets: int
) -> list[list[ExampleBatch]]:
    """Return subsets of labelled examples, or one per item if there are fewer, in batches."""
    if isinstance(model.task.output_type, GeneratedOutput):
        raise UserError(
            f"task {model.task.name} generates text, and the loss of its examples cannot be "
            f"measured one by one: choose a model with another output type"
        )
    part = EncodedTask.encode(model.task, examples, examples, model.example_encoder)
    items = range(len(part.items))
    return [
        [
            ExampleBatch(model, part, subset[start : start + batch_size])
            for start in range(0, len(subset), batch_size)
        ]
        for subset in (items[index::num_subsets] for index in range(min(num_subsets, len(items))))
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
