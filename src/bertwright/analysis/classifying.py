"""Which class of a text a fine-tuned model names, with whatever is gated or replaced."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.analysis.asking import PLACES_AT_ONCE, Batches, Questions, Within
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.errors import UserError
from bertwright.model.reading import read_batches
from bertwright.tasks.answers import ClassAnswer
from bertwright.tasks.evaluation import task_examples
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example


def names_classes(subject: Subject) -> bool:
    """Whether the model says of a text which class it is of, or of a pair that it reads in one."""
    model = subject.text_model
    if not isinstance(model, FineTuned) or model.maker.apart:
        return False
    return isinstance(model.task.answer, ClassAnswer)


def labels_of(subject: Subject) -> Sequence[str]:
    """Its classes; none of a model that names pieces."""
    model = subject.text_model
    return model.task.labels if isinstance(model, FineTuned) else ()


@dataclass(frozen=True)
class Classifying(Questions):
    """Texts and the number of the class that is right for each: one answer of each text."""

    right: Sequence[int]

    def batches(self, within: Within = lambda _: nullcontext()) -> Batches:
        for numbers, logits in _outputs(self.subject, self.texts, within):
            target = torch.tensor([self.right[n] for n in numbers], device=logits.device)
            loss = F.cross_entropy(logits, target, reduction="none")
            right = (logits.argmax(-1) == target).to(logits)
            yield numbers, loss, right, torch.ones_like(right)


def labelled_texts(subject: Subject, folder: Path) -> list[Example]:
    """The development texts of a folder as the task of a model reads them, with their labels.

    Errors: UserError for a model that names no classes, and for what cannot be read.
    """
    model = subject.text_model
    if not isinstance(model, FineTuned) or not names_classes(subject):
        raise UserError(f"{folder} is a folder, and {subject.name} names no classes: give a file")
    examples = task_examples(model.task, folder)
    return [example for example in examples if isinstance(example, Example)]


def right_classes(subject: Subject, texts: Sequence[ReadText]) -> list[int]:
    """The number of the class of each: as the text is labelled, or else as the model names it."""
    labels = labels_of(subject)
    return [
        labels.index(text.source.label)
        if isinstance(text.source, Example) and text.source.label in labels
        else named
        for text, named in zip(texts, named_classes(subject, texts), strict=True)
    ]


@torch.inference_mode()
def named_classes(subject: Subject, texts: Sequence[ReadText]) -> list[int]:
    """The number of the class that the model names, of each."""
    found = [0] * len(texts)
    for numbers, logits in _outputs(subject, texts, lambda _: nullcontext()):
        for number, own in zip(numbers, logits.argmax(-1).tolist(), strict=True):
            found[number] = own
    return found


def _outputs(
    subject: Subject,
    texts: Sequence[ReadText],
    within: Within,
) -> Iterator[tuple[list[int], Tensor]]:
    model = subject.text_model
    assert isinstance(model, FineTuned)
    for batch in read_batches(
        [text.pieces for text in texts],
        subject.tokenizer.specials.pad,
        model.device,
        [text.parts for text in texts] if texts[0].segmented else None,
        PLACES_AT_ONCE,
    ):
        with within(batch):
            logits = model.net(batch.pieces, batch.coordinates)
        yield batch.numbers.tolist(), logits
