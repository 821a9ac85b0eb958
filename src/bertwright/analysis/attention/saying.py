"""What a model says to one text, and its attention while it does: to be changed and asked again."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.classifying import names_classes
from bertwright.analysis.questions import HIDDEN, lacks_hidden_places
from bertwright.analysis.rows import row_of
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.encoder.stream import Coordinates
from bertwright.randomness import key, uniform
from bertwright.tasks.fine_tuned import FineTuned


@dataclass(frozen=True)
class Saying:
    """A text with the answer to it.

    Attributes:
        pieces, coordinates: (1, T), of a model that names pieces with one place hidden.
        place: which; None where the class of the text is asked.
        answer: (K,) how likely each class or piece is.
        attention: of every layer, (1, H, T, T).
    """

    subject: Subject
    pieces: Tensor
    coordinates: Coordinates
    place: int | None
    answer: Tensor
    attention: Sequence[Tensor]

    @staticmethod
    def lacks(subject: Subject) -> str | None:
        """Why it says nothing, in words."""
        if names_classes(subject) or lacks_hidden_places(subject) is None:
            return None
        return f"it needs a model that names a class of texts, or {HIDDEN}"

    @staticmethod
    @torch.no_grad()
    def of(subject: Subject, text: ReadText, seed: int, number: int) -> "Saying":
        """The answer as it is; the place that is hidden is drawn."""
        (pieces, coordinates), place = row_of(subject, text), None
        if not names_classes(subject):
            inside = np.flatnonzero(text.word >= 0)
            place = int(inside[uniform(key(seed, "saying"), number, inside).argmin()])
            pieces[0, place] = subject.tokenizer.specials.mask
        with subject.encoder.record("blocks.*.attention.weights") as values:
            answer = _said(subject, pieces, coordinates, place)
        attention = [
            values[f"blocks.{layer}.attention.weights"] for layer in range(subject.num_layers)
        ]
        return Saying(subject, pieces, coordinates, place, answer, attention)

    @property
    def num_layers(self) -> int:
        """Of the model."""
        return len(self.attention)

    def said(self) -> Tensor:
        """The answer (K,) of the model as it is now."""
        return _said(self.subject, self.pieces, self.coordinates, self.place)

    def changed(
        self, layer: int, change: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Another attention in a layer, made of its own (1, H, T, T)."""
        return self.subject.encoder.replace(f"blocks.{layer}.attention.weights", change)

    def with_scores(self, added: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """With so much ``added`` to the scores of every layer, (1, H, T, T) each: its attention,
        and the answer (K,)."""
        encoder, site = self.subject.encoder, "blocks.{}.attention.{}"
        with ExitStack() as stack:
            for layer, own in enumerate(added):
                name = site.format(layer, "scores")
                stack.enter_context(encoder.replace(name, lambda scores, own=own: scores + own))
            values = stack.enter_context(
                encoder.record("blocks.*.attention.weights", gradients=True)
            )
            said = self.said()
        return [values[site.format(layer, "weights")] for layer in range(len(added))], said


def _said(subject: Subject, pieces: Tensor, coordinates: Coordinates, place: int | None) -> Tensor:
    model = subject.text_model
    if place is None:
        assert isinstance(model, FineTuned)
        return model.net(pieces, coordinates)[0].softmax(-1)
    states = model.model(pieces, coordinates)
    return model.model.logits(states[:, place])[0].softmax(-1)
