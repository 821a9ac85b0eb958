"""Which class a fine-tuned model names, of texts as they are or of what was made of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.asking import PLACES_AT_ONCE, Batches
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.model.reading import ReadBatch, read_batches
from bertwright.tasks.answers import ClassAnswer
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example

Words = list[str]


def lacks_classes(case: Case) -> str | None:
    """Why there is no class to be named, in words."""
    if names_classes(case.subject):
        return None
    return "it needs a model that was fine-tuned to name a class of texts"


def names_classes(subject: Subject) -> bool:
    """Whether the model says of a text which class it is of."""
    model = subject.text_model
    return isinstance(model, FineTuned) and isinstance(model.task.answer, ClassAnswer)


def classified(subject: Subject, texts: Sequence[Sequence[Words]]) -> list[Mapping[str, float]]:
    """How likely each class is, of texts of one part or two."""
    model = subject.text_model
    assert isinstance(model, FineTuned)
    joined = [[" ".join(part) for part in parts] for parts in texts]
    examples = [Example(parts[0], parts[1] if len(parts) > 1 else None) for parts in joined]
    said = [prediction.probabilities for prediction in model.predict(examples)]
    return [own for own in said if isinstance(own, dict)]


def likeliest(chances: Sequence[Mapping[str, float]]) -> list[str]:
    """The class of each; a tie goes to the first."""
    return [max(own, key=own.__getitem__) for own in chances]


def parts_of(text: ReadText) -> list[Words]:
    """The words of each part of a text."""
    of_word = np.array(text.parts)[text.marks["first"]]
    return [
        [word for word, own in zip(text.words, of_word, strict=True) if own == part]
        for part in range(max(text.parts) + 1)
    ]


@dataclass(frozen=True)
class Classifying:
    """Rows and the number of the class that is right for each, asked for as
    :class:`~bertwright.analysis.asking.Asking` asks for pieces."""

    subject: Subject
    texts: Sequence[ReadText]
    right: Sequence[int]

    def batches(
        self, within: Callable[[ReadBatch], AbstractContextManager[None]] = lambda _: nullcontext()
    ) -> Batches:
        """The answers, one of each text, with gradients where they are on."""
        for numbers, logits in _outputs(self.subject, self.texts, within):
            target = torch.tensor([self.right[n] for n in numbers], device=logits.device)
            loss = F.cross_entropy(logits, target, reduction="none")
            right = (logits.argmax(-1) == target).to(logits)
            yield numbers, loss, right, torch.ones_like(right)


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
    within: Callable[[ReadBatch], AbstractContextManager[None]],
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
