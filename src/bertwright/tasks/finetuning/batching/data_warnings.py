"""Warnings about the data of a run, one sentence each."""

from collections import Counter
from collections.abc import Iterator, Sequence

from bertwright.core.messages import count_noun
from bertwright.tasks.data.splits import labels_missing_from
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.run import FineTuningRun
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs import TokenClassificationOutput
from bertwright.tasks.outputs.output_type import location_of
from bertwright.tasks.task import Task


def run_warnings(run: FineTuningRun) -> list[str]:
    """Return warnings about data that limits the score of any of the tasks.

    They concern truncated texts, split sentences, answers without a token, labels missing from a
    split, and overlapping splits.
    """
    return [
        sentence
        for index, encoded_task in enumerate(run.encoded_tasks)
        for sentence in (
            *_truncation_warnings(run, index, encoded_task),
            *_split_warnings(run, encoded_task),
            *_alignment_warnings(encoded_task),
            *missing_label_warnings(encoded_task.task, encoded_task.train, encoded_task.dev),
            *_single_reference_warnings(encoded_task),
            *_overlap_warnings(encoded_task),
        )
    ]


def missing_label_warnings(
    task: Task, train: Examples, dev: Examples, split_name: str = "the held-out split"
) -> Iterator[str]:
    """Warn of labels missing from the training or the held-out split, ``split_name``."""
    for examples, others, subject, effect in (
        (train, dev, f"{split_name} has no examples", "the score does not cover them"),
        (dev, train, "there are no training examples", "they are never predicted"),
    ):
        if labels := labels_missing_from(task, examples, others):
            names = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
            yield (
                f"task {task.name}: {subject} of {len(labels)} of {len(task.labels)} labels "
                f"({names}): {effect}: give more examples of each"
            )


def _single_reference_warnings(encoded_task: EncodedTask) -> Iterator[str]:
    output_type = encoded_task.task.output_type
    can_calibrate = output_type.can_calibrate or getattr(output_type, "unanswerable", False)
    if can_calibrate and not output_type.has_distinct_references(encoded_task.dev):
        yield (
            f"task {encoded_task.task.name}: all {len(encoded_task.dev):,} held-out examples have "
            f"the same reference: the score means little, and calibration is skipped"
        )


def _truncation_warnings(
    run: FineTuningRun, task_index: int, encoded_task: EncodedTask
) -> Iterator[str]:
    if indices := encoded_task.truncated_examples():
        is_siamese = run.model.head_of(task_index).config.pooling == "siamese"
        lacks_stride = encoded_task.task.output_type.can_use_stride and not is_siamese
        windows = ", or split texts into windows with output_type.stride" if lacks_stride else ""
        yield (
            f"{location_of(encoded_task.train[indices[0]])}: "
            f"{_count_phrase(indices, 'training example')} longer than {run.max_length} tokens and "
            f"truncated, this one first: raise max_length{windows}"
        )


def _split_warnings(run: FineTuningRun, encoded_task: EncodedTask) -> Iterator[str]:
    output_type = encoded_task.task.output_type
    if not isinstance(output_type, TokenClassificationOutput) or output_type.stride is not None:
        return
    num_sequences = Counter(sequence.example_index for sequence in encoded_task.sequences)
    if indices := sorted(index for index, number in num_sequences.items() if number > 1):
        yield (
            f"{location_of(encoded_task.train[indices[0]])}: "
            f"{_count_phrase(indices, 'training example')} longer than {run.max_length} tokens and "
            f"split without overlap, this one first: raise max_length, or set output_type.stride"
        )


def _alignment_warnings(encoded_task: EncodedTask) -> Iterator[str]:
    if indices := encoded_task.unaligned:
        yield (
            f"{location_of(encoded_task.train[indices[0]])}: "
            f"{_count_phrase(indices, 'training example')} left out, this one first: no token "
            f"represents the answer, or no window contains all of it"
        )


def _overlap_warnings(encoded_task: EncodedTask) -> Iterator[str]:
    if indices := encoded_task.overlapping_examples:
        yield (
            f"{location_of(encoded_task.dev[indices[0]])}: {len(indices):,} of "
            f"{len(encoded_task.dev):,} held-out examples are in the training data, this one "
            f"first: the score is a poor estimate for new texts"
        )


def _count_phrase(examples: Sequence[int], noun: str) -> str:
    return f"{count_noun(len(examples), noun)} {'is' if len(examples) == 1 else 'are'}"
