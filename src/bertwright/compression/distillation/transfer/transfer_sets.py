"""The examples that the stages of a method train on."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np

from bertwright.compression.distillation.augmentation import (
    Augmentation,
    AugmentationFunction,
    AugmentationInputs,
    augment_examples,
    augmentable_texts,
)
from bertwright.compression.distillation.transfer.dataset import TransferDataset, TransferWriter
from bertwright.compression.distillation.transfer.examples import (
    example_texts,
    pseudo_labelled,
    require_labelling,
    to_json_line,
    without_label,
)
from bertwright.core.errors import UserError
from bertwright.core.files import file_lock
from bertwright.core.rng import stream_key
from bertwright.data.deduplication import FingerprintTable
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples, TaskExample
from bertwright.tasks.outputs import FloatArray
from bertwright.tasks.outputs.output_decoder import group_by_example
from bertwright.tasks.prediction import CHUNK_SIZE
from bertwright.tasks.provenance import model_checksum, prediction_fingerprint

ExampleSource = Literal["task", "unlabelled"]


@dataclass(frozen=True)
class TransferSets:
    """The examples for all stages: the task's own, or texts labelled by the teacher.

    Attributes:
        train: the training examples.
        unlabelled: texts without labels; None uses the texts of the task.
        folder: stores teacher outputs; an interrupted run resumes from it.
        augmenter: a masked language model, for augmentations that need one.
        seed: seed of the augmentations.
    """

    teacher: FineTunedModel
    train: Examples
    unlabelled: Iterable[TaskExample] | None
    folder: Path
    augmenter: TextModel | None = None
    seed: int = 0
    _cache: dict[tuple[ExampleSource, Augmentation | None], Examples] = field(
        default_factory=dict[tuple[ExampleSource, Augmentation | None], Examples],
        init=False,
        repr=False,
    )

    def examples(self, source: ExampleSource, augmentation: Augmentation | None = None) -> Examples:
        """Return examples of the task or unlabelled texts, with augmented copies if any.

        Labels of the task are kept; the teacher labels all other texts. Raises UserError for a task
        whose labels a text alone cannot have, or if there is no text.
        """
        if source == "task" and augmentation is None:
            return self.train
        if (source, augmentation) not in self._cache:
            self._cache[source, augmentation] = self._label(source, augmentation)
        return self._cache[source, augmentation]

    def texts(self) -> Iterator[str]:
        """Yield all texts, before augmentation."""
        for example in chain(self.train, () if self.unlabelled is None else self.unlabelled):
            yield from example_texts(example)

    def _label(self, source: ExampleSource, augmentation: Augmentation | None) -> TransferDataset:
        require_labelling(self.teacher.task)
        augment, chunk_size = None, CHUNK_SIZE
        if augmentation is not None:
            augment = augmentation.build(self._augmentation_inputs())
            chunk_size = max(CHUNK_SIZE // (1 + augmentation.num_copies), 1)
        examples, seen = iter(self._source_examples(source)), _SeenTexts()
        first = list(islice(examples, chunk_size))
        examples = chain(first, examples)
        folder = self.folder / self._folder_name(source, augmentation, _hash_of(first))
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock(folder, wait=True):
            writer = TransferWriter(folder, self.teacher.task_model.head_spec.num_outputs)
            while chunk := list(islice(examples, chunk_size)):
                key = _hash_of(chunk)
                if writer.skip_existing(key):
                    if augment is not None:
                        seen.update(writer.last_examples())
                    continue
                texts = chunk if augment is None else _with_new_copies(chunk, augment, seen)
                writer.append(key, *_predict(self.teacher, texts))
            writer.truncate()
        if not writer.num_texts:
            raise UserError("there are no unlabelled texts: name a file of them with --unlabelled")
        return TransferDataset(folder, self.teacher)

    def _source_examples(self, source: ExampleSource) -> Iterable[TaskExample]:
        if source == "task":
            return self.train
        return map(without_label, self.train if self.unlabelled is None else self.unlabelled)

    def _augmentation_inputs(self) -> AugmentationInputs:
        tokenizer = self.teacher.tokenizer
        mask_token = tokenizer.id_to_token(tokenizer.special_tokens.mask)
        return AugmentationInputs(_ExampleTexts(self.train), mask_token, self.augmenter, self.seed)

    def _folder_name(
        self, source: ExampleSource, augmentation: Augmentation | None, first_hash: str
    ) -> str:
        """Return a folder name with a hash of all inputs, but only the first chunk of texts."""
        inputs = [*prediction_fingerprint(self.teacher), first_hash]
        if augmentation is not None:
            inputs += [augmentation.model_dump_json(), str(self.seed)]
            inputs.append(sha256("\n".join(_ExampleTexts(self.train)).encode()).hexdigest())
            if self.augmenter is not None and augmentation.needs_augmenter:
                inputs.append(model_checksum(self.augmenter))
        kind = "unchanged" if augmentation is None else augmentation.kind_name()
        return f"{source}-{kind}-{sha256(json.dumps(inputs).encode()).hexdigest()[:12]}"


def _hash_of(examples: Examples) -> str:
    return sha256("\n".join(map(to_json_line, examples)).encode()).hexdigest()


@dataclass(frozen=True)
class _ExampleTexts:
    """The texts of examples; they can be iterated over more than once."""

    examples: Examples

    def __iter__(self) -> Iterator[str]:
        return (text for example in self.examples for text in augmentable_texts(example))


class _SeenTexts:
    """A set of texts, stored as fingerprints."""

    def __init__(self) -> None:
        self._fingerprints, self._num_texts = FingerprintTable(), 0

    def is_new(self, example: TaskExample) -> bool:
        """Add the texts of an example; return True if they are new."""
        self._num_texts += 1
        key = stream_key(0, "transfer", *augmentable_texts(example))
        return self._fingerprints.first_index(key, self._num_texts) == self._num_texts

    def update(self, examples: Iterable[TaskExample]) -> None:
        """Add the texts of examples."""
        for example in examples:
            self.is_new(example)


def _with_new_copies(
    examples: Sequence[TaskExample], augment: AugmentationFunction, seen_texts: _SeenTexts
) -> list[TaskExample]:
    """Return the examples, each followed by its new copies."""
    augmented: list[TaskExample] = []
    for example, copies in zip(examples, augment_examples(examples, augment), strict=True):
        seen_texts.update([example])
        augmented += [example, *filter(seen_texts.is_new, copies)]
    return augmented


def _predict(
    teacher: FineTunedModel, examples: Examples
) -> tuple[list[TaskExample], list[FloatArray]]:
    """Return examples with predicted labels, and the outputs (k, K) of each."""
    sequences = teacher.output_decoder.encode(teacher.example_encoder, examples)
    outputs = teacher.head_outputs(sequences)
    predictions = teacher.output_decoder.decode(sequences, outputs, examples)
    labelled = [pseudo_labelled(e, p) for e, p in zip(examples, predictions, strict=True)]
    empty = np.empty((0, teacher.task_model.head_spec.num_outputs), np.float32)
    groups = group_by_example(sequences, outputs, len(examples))
    return labelled, [np.concatenate([empty, *(output for _, output in g)]) for g in groups]
