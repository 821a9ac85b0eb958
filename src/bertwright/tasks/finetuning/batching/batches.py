"""Batches of fine-tuning: the items of one task with their targets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.models.generation.generate import decoder_start_id
from bertwright.models.scoring.decoder_likelihood import shift_right
from bertwright.models.text_batches import pad_sequences
from bertwright.models.text_model import TextModel
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.example_encoder import TaskSequence, document_ids_of
from bertwright.tasks.fine_tuned_model import flat_positions
from bertwright.tasks.finetuning.batching.bucket_sampler import BucketBatchSampler
from bertwright.tasks.finetuning.batching.encoded_task import (
    EncodedTask,
    TaskSchedule,
    target_dtype,
)
from bertwright.tasks.finetuning.batching.packing import SequencePacking
from bertwright.tasks.finetuning.batching.used_vocabulary import UsedVocabulary
from bertwright.tasks.finetuning.losses import NEXT_TOKENS
from bertwright.tasks.outputs import GeneratedOutput
from bertwright.tasks.task_model import DecoderInputs
from bertwright.training.clock import Progress
from bertwright.training.step_batch import StepBatch

MICRO_BATCH_POSITIONS = 8192
"""Steps with more positions are split into equal micro-batches, to bound memory."""

TASK_LOSS = "task"
"""Name of the loss of the labels."""

OUTPUT_PENALTY = "output_penalty"
"""Name of the penalty on the outputs of a head."""


@dataclass(frozen=True)
class TaskBatch:
    """Some items of a task on the device, with their targets.

    Attributes:
        sequence_indices: indices of the sequences, fillers included.
        token_ids: (B, L) int64.
        positions: (M,) flat output positions; None if whole sequences are read.
        output_lengths: number of outputs of each sequence, fillers included.
        item_output_lengths: number of outputs of each item, without fillers.
        targets: (T,) targets of the items; outputs of fillers are ignored.
        num_sequences: number of sequences that are not fillers; these come first.
        first_sequence, first_output: indices in the step of the first sequence and the first
            output.
        count: the divisor of the losses of the step.
        decoder_inputs: inputs of the decoder, if the outputs are texts.
        packing: arrangement in which the encoder reads the sequences; None for one in a row.
    """

    task_index: int
    sequence_indices: Sequence[int]
    token_ids: Tensor
    token_info: TokenInfo
    positions: Tensor | None
    output_lengths: Sequence[int]
    item_output_lengths: Sequence[int]
    targets: Tensor
    num_sequences: int
    first_sequence: int
    first_output: int
    count: float
    decoder_inputs: DecoderInputs | None = None
    packing: SequencePacking | None = None


@dataclass(frozen=True)
class TaskBatchSource:
    """The batches of a run."""

    source: TextModel
    encoded_tasks: Sequence[EncodedTask]
    samplers: Sequence[BucketBatchSampler]
    schedule: TaskSchedule
    used_vocabulary: UsedVocabulary | None = None
    """The reduced vocabulary of the embedding table; None for the whole vocabulary."""
    has_language_model: bool = False
    """Whether to add a next-token loss."""
    is_packed: bool = False
    """Whether the encoder reads several sequences in a row."""

    def at(self, progress: Progress) -> StepBatch[TaskBatch]:
        """Return the batch of a step."""
        task_step = self.schedule.at(progress.step)
        task = self.encoded_tasks[task_step.task_index]
        step = self.samplers[task_step.task_index].at(task_step.step)
        items = [task.items[int(index)] for index in step.item_indices]
        count = sum(len(task.targets[int(n)]) for n in step.item_indices[: step.num_real])
        size = self._items_per_micro_batch(task, items, step.length)
        micro_batches: list[TaskBatch] = []
        first_sequence = first_output = 0
        for start in range(0, step.num_real, size):
            micro_batch = build_task_batch(
                task,
                [int(n) for n in step.item_indices[start : start + size]],
                step.length,
                self.source,
                num_real=min(size, step.num_real - start),
                used_vocabulary=self.used_vocabulary,
                task_index=task_step.task_index,
                offsets=(first_sequence, first_output),
                count=float(count),
                is_packed=self.is_packed,
            )
            micro_batches.append(micro_batch)
            first_sequence += len(micro_batch.sequence_indices)
            first_output += sum(micro_batch.item_output_lengths)
        sequences = [task.sequences[n] for item in items[: step.num_real] for n in item]
        counts = {TASK_LOSS: float(count)}
        if task.task.output_type.is_penalised:
            counts[OUTPUT_PENALTY] = 1.0
        if self.has_language_model:
            counts[NEXT_TOKENS] = float(sum(len(sequence.token_ids) - 1 for sequence in sequences))
        num_tokens = sum(len(sequence.token_ids) for sequence in sequences)
        return StepBatch(micro_batches, counts, len(sequences), num_tokens)

    @staticmethod
    def _items_per_micro_batch(
        encoded_task: EncodedTask, items: Sequence[range], length: int
    ) -> int:
        """Return the number of items per micro-batch, the same for all micro-batches of a step."""
        if encoded_task.task.output_type.has_in_batch_negatives:
            return len(items)
        num_positions = sum(len(item) for item in items) * length
        num_positions += sum(
            len(encoded_task.sequences[n].target_ids) for item in items for n in item
        )
        num_batches = min(-(-num_positions // MICRO_BATCH_POSITIONS), len(items))
        while len(items) % num_batches:
            num_batches += 1
        return len(items) // num_batches


def build_task_batch(
    task: EncodedTask,
    items: Sequence[int],
    length: int,
    source: TextModel,
    *,
    num_real: int | None = None,
    used_vocabulary: UsedVocabulary | None = None,
    task_index: int = 0,
    offsets: tuple[int, int] = (0, 0),
    count: float = 0.0,
    is_packed: bool = False,
) -> TaskBatch:
    """Return the batch of some items of a task, padded to ``length``.

    Items after the first ``num_real`` are fillers. ``offsets`` are the indices in the step of the
    first sequence and the first output; ``count`` divides the losses of the step. With
    ``is_packed``, the batch has a packing.
    """
    real = items[:num_real]
    indices = [n for item in items for n in task.items[item]]
    sequences = [task.sequences[n] for n in indices]
    token_ids, token_info = collate(sequences, length, source)
    if used_vocabulary is not None:
        token_ids = used_vocabulary.compact_ids[token_ids]
    output_type = task.task.output_type
    output_length, device = task.output_decoder.output_length, source.device
    num_sequences = sum(len(task.items[item]) for item in real)
    decoder_inputs = None
    if isinstance(output_type, GeneratedOutput):
        languages = output_type.language_ids(source)
        token_info = token_info.with_language(token_ids, languages.prompt)
        decoder_inputs = make_decoder_inputs(sequences, num_sequences, source, languages.output)
    targets = [target for item in real for target in task.targets[item]]
    packing = None
    if is_packed:
        lengths = [len(sequence.token_ids) for sequence in sequences]
        packing = SequencePacking.from_lengths(lengths, length, device)
    return TaskBatch(
        task_index,
        indices,
        token_ids,
        token_info,
        flat_positions(sequences, length).to(device) if output_type.has_output_positions else None,
        [output_length(sequence) for sequence in sequences],
        [sum(output_length(task.sequences[n]) for n in task.items[item]) for item in real],
        torch.tensor(targets, dtype=target_dtype(task), device=device),
        num_sequences,
        *offsets,
        count,
        decoder_inputs,
        packing,
    )


def make_decoder_inputs(
    sequences: Sequence[TaskSequence],
    num_real: int,
    source: TextModel,
    language_id: int | None = None,
) -> DecoderInputs:
    """Return the decoder inputs of sequences; those after the first ``num_real`` are fillers."""
    specials = source.tokenizer.special_tokens
    targets = [sequence.target_ids for sequence in sequences]
    inputs = shift_right(targets, decoder_start_id(source.model.recipe, specials))
    lengths = [len(target) for target in targets[:num_real]] + [0] * (len(targets) - num_real)
    width = max(map(len, inputs))
    token_ids = torch.tensor([ids + [specials.pad] * (width - len(ids)) for ids in inputs])
    is_real = torch.arange(width) < torch.tensor(lengths)[:, None]
    token_ids, is_real = token_ids.to(source.device), is_real.to(source.device)
    language_ids = None if language_id is None else torch.full_like(token_ids, language_id)
    return DecoderInputs(token_ids, is_real, language_ids)


def collate(
    sequences: Sequence[TaskSequence], length: int, source: TextModel
) -> tuple[Tensor, TokenInfo]:
    """Return padded token ids (B, L) and token info.

    Real positions are marked even if there is no padding, so a step has one shape and is compiled
    once.
    """
    indices: NDArray[np.int64] = np.arange(len(sequences))
    has_segments = sequences[0].segment_ids is not None
    batch = pad_sequences(
        [sequence.token_ids for sequence in sequences],
        [sequence.segment_ids or [] for sequence in sequences] if has_segments else None,
        indices,
        length,
        source.tokenizer.special_tokens.pad,
        source.device,
        document_ids_of(sequences),
    )
    token_info = batch.token_info
    if token_info.document_ids is None:
        token_info = replace(token_info, document_ids=torch.zeros_like(batch.token_ids))
    return batch.token_ids, token_info
