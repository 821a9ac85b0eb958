"""The texts of the stages of a method."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import numpy as np

from bertwright.compression.augmentation import (
    Augmentation,
    Augmenter,
    Given,
    augmented,
    texts_of,
)
from bertwright.compression.transfer.answered import AnsweredTexts, Answers
from bertwright.compression.transfer.texts import (
    answered,
    line_of,
    require_answers,
    unlabelled,
    written_in,
)
from bertwright.errors import UserError
from bertwright.files import held
from bertwright.model.text_model import TextModel
from bertwright.randomness import key
from bertwright.tasks.answers import Floats
from bertwright.tasks.answers.answer import by_example
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import AnyExample, Examples
from bertwright.tasks.origins import answering_sums, of_model
from bertwright.tasks.prediction import AT_ONCE
from bertwright.text.duplicates import FirstHolders

Source = Literal["task", "transfer"]


@dataclass(frozen=True)
class TransferSets:
    """What stages learn from: the training examples of the task as they are, or texts that the
    teacher answers.

    Attributes:
        train: the training examples.
        transfer: texts of which nothing is known, None where those of the task serve.
        folder: where answers are kept; a run that was stopped goes on with them.
        namer: a model that names words, for augmentations that ask one.
        seed: by which texts are changed.
    """

    teacher: FineTuned
    train: Examples
    transfer: Iterable[AnyExample] | None
    folder: Path
    namer: TextModel | None = None
    seed: int = 0
    _made: dict[tuple[Source, Augmentation | None], Examples] = field(
        default_factory=dict[tuple[Source, Augmentation | None], Examples], init=False, repr=False
    )

    def of(self, source: Source, augmentation: Augmentation | None = None) -> Examples:
        """Of the examples of the task, or of others; with an augmentation as they are, and changed.
        What a text is labelled with in the task stays; all else the teacher answers.

        Errors: UserError for a task whose answers no text bears, and where there is no text.
        """
        if source == "task" and augmentation is None:
            return self.train
        if (source, augmentation) not in self._made:
            self._made[source, augmentation] = self._answered(source, augmentation)
        return self._made[source, augmentation]

    def texts(self) -> Iterator[str]:
        """All that anything is learned from, as it is."""
        for example in chain(self.train, () if self.transfer is None else self.transfer):
            yield from written_in(example)

    def _answered(self, source: Source, augmentation: Augmentation | None) -> AnsweredTexts:
        require_answers(self.teacher.task)
        augmenter, at_once = None, AT_ONCE
        if augmentation is not None:
            augmenter = augmentation.augmenter(self._given())
            at_once = max(AT_ONCE // (1 + augmentation.copies), 1)
        examples, seen = iter(self._sources(source)), _Seen()
        first = list(islice(examples, at_once))
        examples = chain(first, examples)
        folder = self.folder / self._name(source, augmentation, _sum_of(first))
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder, wait=True):
            answers = Answers(folder, self.teacher.net.plan.num_outputs)
            while some := list(islice(examples, at_once)):
                of = _sum_of(some)
                if answers.has(of):
                    if augmenter is not None:
                        seen.update(answers.last())
                    continue
                texts = some if augmenter is None else _with_copies(some, augmenter, seen)
                answers.add(of, *_said(self.teacher, texts))
            answers.cut()
        if not answers.num_texts:
            raise UserError("there are no transfer texts: give some with --transfer")
        return AnsweredTexts(folder, self.teacher)

    def _sources(self, source: Source) -> Iterable[AnyExample]:
        if source == "task":
            return self.train
        return map(unlabelled, self.train if self.transfer is None else self.transfer)

    def _given(self) -> Given:
        tokenizer = self.teacher.tokenizer
        hidden = tokenizer.piece(tokenizer.specials.mask)
        return Given(_Texts(self.train), hidden, self.namer, self.seed)

    def _name(self, source: Source, augmentation: Augmentation | None, first: str) -> str:
        """Of the folder of a set: what it follows from, of the texts but the first."""
        told = [*answering_sums(self.teacher), first]
        if augmentation is not None:
            told += [augmentation.model_dump_json(), str(self.seed)]
            told.append(sha256("\n".join(_Texts(self.train)).encode()).hexdigest())
            if self.namer is not None and augmentation.asks_namer:
                told.append(of_model(self.namer))
        kind = "as-they-are" if augmentation is None else augmentation.own_kind()
        return f"{source}-{kind}-{sha256(json.dumps(told).encode()).hexdigest()[:12]}"


def _sum_of(examples: Examples) -> str:
    return sha256("\n".join(map(line_of, examples)).encode()).hexdigest()


@dataclass(frozen=True)
class _Texts:
    """Those of examples, one after the other, as often as they are asked for."""

    examples: Examples

    def __iter__(self) -> Iterator[str]:
        return (text for example in self.examples for text in texts_of(example))


class _Seen:
    """Which texts there were."""

    def __init__(self) -> None:
        self._holders, self._number = FirstHolders(), 0

    def new(self, example: AnyExample) -> bool:
        """Whether this is the first time."""
        self._number += 1
        of = key(0, "transfer", *texts_of(example))
        return self._holders.first(of, self._number) == self._number

    def update(self, examples: Iterable[AnyExample]) -> None:
        """Note what there is."""
        for example in examples:
            self.new(example)


def _with_copies(
    examples: Sequence[AnyExample], augmenter: Augmenter, seen: _Seen
) -> list[AnyExample]:
    """Examples, each with those of its copies that nobody has seen."""
    found: list[AnyExample] = []
    for example, copies in zip(examples, augmented(examples, augmenter), strict=True):
        seen.update([example])
        found += [example, *filter(seen.new, copies)]
    return found


def _said(teacher: FineTuned, examples: Examples) -> tuple[list[AnyExample], list[Floats]]:
    """Examples with what a teacher answers, and the outputs (k, K) of each."""
    rows = teacher.answering.rows(teacher.maker, examples)
    outputs = teacher.outputs(rows)
    said = teacher.answering.predictions(rows, outputs, examples)
    none = np.empty((0, teacher.net.plan.num_outputs), np.float32)
    parts = by_example(rows, outputs, len(examples))
    whole = [np.concatenate([none, *(output for _, output in own)]) for own in parts]
    return [answered(e, s) for e, s in zip(examples, said, strict=True)], whole
