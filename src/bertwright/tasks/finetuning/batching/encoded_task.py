"""The encoded tasks of a run, and the schedule of their steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.rng import RandomPermutation, stream_key
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence, num_truncated_tokens
from bertwright.tasks.finetuning.batching.bucket_sampler import (
    STEPS_PER_BUCKET,
    Batching,
    BucketBatchSampler,
)
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs import OutputDecoder
from bertwright.tasks.outputs.output_type import location_of
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class EncodedTask:
    """A task with encoded training examples.

    Attributes:
        items: indices of the sequences that are trained together: all sequences of an example for
            grouped output types, else one.
        targets: targets of each item.
        unaligned: indices of the examples without an item, because no token corresponds to their
            answer.
    """

    task: Task
    train: Examples
    dev: Examples
    output_decoder: OutputDecoder
    sequences: Sequence[TaskSequence]
    items: Sequence[range]
    targets: Sequence[Sequence[float]]
    unaligned: Sequence[int] = ()

    @staticmethod
    def encode(
        task: Task, train: Examples, dev: Examples, example_encoder: ExampleEncoder
    ) -> "EncodedTask":
        """Encode the labelled examples of a task."""
        train = task.output_type.trainable_examples(train)
        decoder = task.output_type.build_decoder(task.labels).fit(train)
        sequences = decoder.encode(example_encoder, train)
        items = _group_items(sequences, task.output_type.is_grouped)
        example_indices = [sequences[item.start].example_index for item in items]
        targets = [
            decoder.targets([sequences[n] for n in item], train[index])
            for item, index in zip(items, example_indices, strict=True)
        ]
        unaligned = _find_unaligned(decoder, train, example_indices, targets)
        if len(unaligned) == len(train):
            raise UserError(
                f"{location_of(train[0])}: no token represents the answer, in any of the examples: "
                f"check answer_start, and that the tokenizer supports the script"
            )
        if unaligned:
            kept = [n for n, index in enumerate(example_indices) if index not in unaligned]
            items, targets = [items[n] for n in kept], [targets[n] for n in kept]
        return EncodedTask(task, train, dev, decoder, sequences, items, targets, sorted(unaligned))

    @property
    def lengths(self) -> Sequence[int]:
        """Length of the longest sequence of each item."""
        return [max(len(self.sequences[n].token_ids) for n in item) for item in self.items]

    @property
    def has_float_targets(self) -> bool:
        """True if targets are numbers instead of indices."""
        return any(isinstance(t, float) for targets in self.targets[:1] for t in targets)

    def truncated_examples(self) -> list[int]:
        """Return the indices of the truncated examples."""
        return sorted(num_truncated_tokens(self.sequences))

    @cached_property
    def overlapping_examples(self) -> list[int]:
        """Indices of the held-out examples whose texts occur in the training data."""
        dev_texts = {example.texts for example in self.dev}
        shared = {example.texts for example in self.train if example.texts in dev_texts}
        return [index for index, example in enumerate(self.dev) if example.texts in shared]


@dataclass(frozen=True)
class TaskStep:
    """The task that a step trains, and the number of its previous steps."""

    task_index: int
    step: int


@dataclass(frozen=True)
class TaskSchedule:
    """The task that each step trains: a pure function of the seed and the step.

    An epoch has as many steps as one pass over all tasks. Tasks share the steps by their number of
    examples to a power: 1 is proportional, 0 is equal.
    """

    steps_per_task: tuple[int, ...]
    seed: int
    _order: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def from_samplers(
        samplers: Sequence[BucketBatchSampler], power: float, seed: int
    ) -> "TaskSchedule":
        """Return the schedule of tasks with these samplers."""
        steps = np.array([sampler.steps_per_epoch for sampler in samplers], dtype=np.float64)
        weights = steps**power
        exact = steps.sum() * weights / weights.sum()
        allocated = np.maximum(np.floor(exact), 1).astype(np.int64)
        # The largest remainders get the steps left over by rounding.
        for index in np.argsort(allocated - exact)[: int(max(steps.sum() - allocated.sum(), 0))]:
            allocated[index] += 1
        return TaskSchedule(tuple(allocated.tolist()), seed)

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of all tasks."""
        return sum(self.steps_per_task)

    def at(self, step: int) -> TaskStep:
        """Return the task of a step of the run."""
        epoch, step_in_epoch = divmod(step, self.steps_per_epoch)
        order = self._epoch_order(epoch)
        task_index = int(order[step_in_epoch])
        num_before = int((order[:step_in_epoch] == task_index).sum())
        return TaskStep(task_index, epoch * self.steps_per_task[task_index] + num_before)

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._order:
            self._order.clear()
            indices = np.repeat(np.arange(len(self.steps_per_task)), self.steps_per_task)
            key = stream_key(self.seed, "finetuning", "turns", epoch)
            permutation = RandomPermutation(len(indices), key)
            self._order[epoch] = indices[permutation(np.arange(len(indices)))]
        return self._order[epoch]


def batch_samplers(
    encoded_tasks: Sequence[EncodedTask],
    batch_size: int,
    seed: int,
    batching: Batching = "buckets",
) -> list[BucketBatchSampler]:
    """Return the batch sampler of each task."""
    num_steps = STEPS_PER_BUCKET if batching == "buckets" else 1
    return [
        BucketBatchSampler.from_lengths(task.lengths, batch_size, seed, num_steps)
        for task in encoded_tasks
    ]


def positions_per_epoch(
    encoded_tasks: Sequence[EncodedTask],
    samplers: Sequence[BucketBatchSampler],
    batching: Batching = "buckets",
) -> int:
    """Return the number of positions computed per epoch; for packed sequences without padding."""
    if batching == "packed":
        return sum(len(s.token_ids) for task in encoded_tasks for s in task.sequences)
    return sum(
        round(sampler.positions_per_epoch * len(task.sequences) / len(task.items))
        for task, sampler in zip(encoded_tasks, samplers, strict=True)
    )


def target_dtype(encoded_task: EncodedTask) -> torch.dtype:
    """Return the dtype of a tensor of targets."""
    return torch.float32 if encoded_task.has_float_targets else torch.int64


def _find_unaligned(
    output_decoder: OutputDecoder,
    examples: Examples,
    example_indices: Sequence[int],
    targets: Sequence[Sequence[float]],
) -> set[int]:
    """Return the indices of the examples whose answer no target of their items contains."""
    by_example: dict[int, list[Sequence[float]]] = {}
    for index, target in zip(example_indices, targets, strict=True):
        by_example.setdefault(index, []).append(target)
    return {n for n, t in by_example.items() if not output_decoder.has_target(t, examples[n])}


def _group_items(sequences: Sequence[TaskSequence], is_grouped: bool) -> list[range]:
    if not is_grouped:
        return [range(index, index + 1) for index in range(len(sequences))]
    starts = [
        n
        for n, sequence in enumerate(sequences)
        if not n or sequence.example_index != sequences[n - 1].example_index
    ]
    return [range(a, b) for a, b in zip(starts, [*starts[1:], len(sequences)], strict=True)]
