"""Examples on disk, possibly more than fit into memory.

Only a few numbers per example stay in memory; texts are read and tokenized when a step needs them.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.formats.examples import Examples, TaskExample
from bertwright.tasks.outputs import OutputDecoder
from bertwright.tasks.task import Task

CHUNK_SIZE = 4096
"""Number of examples tokenized together in a pass over all examples."""

CACHE_SIZE = 4096
"""Number of recent values in the cache: a step reads its sequences more than once."""

Value = TypeVar("Value")


class LazyExamples(Sequence[TaskExample]):
    """A sequence of examples that are read on access."""

    sha256: str
    """SHA-256 checksum of the examples."""


class LazyList(Sequence[Value], Generic[Value]):
    """A sequence of ``size`` values that are computed on access."""

    def __init__(self, size: int, make: Callable[[int], Value]) -> None:
        self._size, self._make = size, lru_cache(CACHE_SIZE)(make)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> list[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | list[Value]:
        if isinstance(index, slice):
            return [self[item] for item in range(self._size)[index]]
        return self._make(range(self._size)[index])


class LazyTaskSequences(LazyList[TaskSequence]):
    """The token sequences of lazy examples.

    Attributes:
        lengths: (N,) int32, number of tokens of each sequence.
        first_outputs: (N,) int32, number of outputs of the preceding sequences of the same example.
        output_lengths: number of outputs of each example.
        truncated_examples: indices of the truncated examples.
    """

    def __init__(
        self, output_decoder: OutputDecoder, example_encoder: ExampleEncoder, examples: LazyExamples
    ) -> None:
        self._output_decoder = output_decoder
        self._example_encoder = example_encoder
        self._examples = examples
        example_of_sequence, index_in_example = array("q"), array("i")
        lengths, first_outputs, self.output_lengths = array("i"), array("i"), array("i")
        self.truncated_examples: list[int] = []
        for example_index, sequences in enumerate(self._by_example()):
            num_outputs = 0
            for index, sequence in enumerate(sequences):
                example_of_sequence.append(example_index)
                index_in_example.append(index)
                lengths.append(len(sequence.token_ids))
                first_outputs.append(num_outputs)
                num_outputs += output_decoder.output_length(sequence)
            self.output_lengths.append(num_outputs)
            if any(sequence.num_truncated for sequence in sequences):
                self.truncated_examples.append(example_index)
        self._example_of_sequence = np.array(example_of_sequence)
        self._index_in_example = np.array(index_in_example)
        self.lengths: NDArray[np.int32] = np.array(lengths)
        self.first_outputs: NDArray[np.int32] = np.array(first_outputs)
        super().__init__(len(example_of_sequence), self._encode_sequence)

    def __iter__(self) -> Iterator[TaskSequence]:
        return (sequence for sequences in self._by_example() for sequence in sequences)

    def _by_example(self) -> Iterator[list[TaskSequence]]:
        """Iterate over the sequences of each example, encoded in chunks."""
        examples, first = iter(self._examples), 0
        while chunk := list(islice(examples, CHUNK_SIZE)):
            by_example: list[list[TaskSequence]] = [[] for _ in chunk]
            for sequence in self._output_decoder.encode(self._example_encoder, chunk):
                index = sequence.example_index
                by_example[index].append(replace(sequence, example_index=first + index))
            yield from by_example
            first += len(chunk)

    def _encode_sequence(self, sequence_index: int) -> TaskSequence:
        example_index = int(self._example_of_sequence[sequence_index])
        example = self._examples[example_index]
        sequences = self._output_decoder.encode(self._example_encoder, [example])
        sequence = sequences[int(self._index_in_example[sequence_index])]
        return replace(sequence, example_index=example_index)


@dataclass(frozen=True)
class LazyEncodedTask(EncodedTask):
    """An encoded task with lazy training examples."""

    sequences: LazyTaskSequences

    @property
    def lengths(self) -> Sequence[int]:
        return self.sequences.lengths.tolist()

    def truncated_examples(self) -> list[int]:
        return self.sequences.truncated_examples


def encode_task(
    task: Task, train: Examples, dev: Examples, example_encoder: ExampleEncoder
) -> EncodedTask:
    """Encode a task, with lazy or in-memory examples."""
    if not isinstance(train, LazyExamples):
        return EncodedTask.encode(task, train, dev, example_encoder)
    assert not task.output_type.is_grouped, "lazy sequences are trained one by one"
    decoder = task.output_type.build_decoder(task.labels).fit(train)
    sequences = LazyTaskSequences(decoder, example_encoder, train)

    def targets(index: int) -> Sequence[float]:
        sequence = sequences[index]
        return decoder.targets([sequence], train[sequence.example_index])

    size = len(sequences)
    items = LazyList(size, lambda item: range(item, item + 1))
    return LazyEncodedTask(task, train, dev, decoder, sequences, items, LazyList(size, targets))


def encode_examples(
    output_decoder: OutputDecoder, example_encoder: ExampleEncoder, examples: Examples
) -> Sequence[TaskSequence]:
    """Return the sequences of lazy or in-memory examples."""
    if isinstance(examples, LazyExamples):
        return LazyTaskSequences(output_decoder, example_encoder, examples)
    return output_decoder.encode(example_encoder, examples)
