"""How well a model answers what is asked of texts, text by text: what removal and perturbation are
measured by. Of pieces the same are asked for every time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.model.hidden import states_asked
from bertwright.model.likelihood import reading_rule
from bertwright.model.reading import ReadBatch, read_batches
from bertwright.randomness import key, uniform

SHARE = 0.15
"""Of the pieces of a text that are asked for, at least one; a causal model is asked for all."""

PLACES_AT_ONCE = 2048


@dataclass(frozen=True)
class Asked:
    """Of every text what its answers cost, in nats, how many are right, and how many there are."""

    loss: NDArray[np.float64]
    right: NDArray[np.float64]
    total: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Nats an answer."""
        return float(self.loss.sum() / self.total.sum())

    @property
    def share(self) -> float:
        """Of right answers."""
        return float(self.right.sum() / self.total.sum())

    @staticmethod
    def of(batches: "Batches", number: int) -> "Asked":
        """What batches say of so many texts, in their order."""
        found = Asked(*(np.zeros(number) for _ in range(3)))
        for numbers, loss, right, total in batches:
            for into, own in ((found.loss, loss), (found.right, right), (found.total, total)):
                into[numbers] = own.double().cpu()
        return found


Batches = Iterator[tuple[list[int], Tensor, Tensor, Tensor]]
"""The numbers of some texts, and of each the loss, the right answers, and how many there are, (B,)
each."""


Within = Callable[[ReadBatch], AbstractContextManager[None]]
"""What is made for a batch while it is read."""


@dataclass(frozen=True)
class Questions(ABC):
    """Texts and what is asked of them; ``seed`` is of what is drawn."""

    subject: Subject
    texts: Sequence[ReadText]
    seed: int

    @torch.inference_mode()
    def asked(self) -> Asked:
        """The answers of the model as it is now, with whatever is gated or replaced."""
        return Asked.of(self.batches(), len(self.texts))

    @abstractmethod
    def batches(self, within: Within = lambda _: nullcontext()) -> Batches:
        """The answers, with gradients where they are on."""


@dataclass(frozen=True)
class Asking(Questions):
    """Some pieces of every text are hidden, and are to be named."""

    seed: int = 0

    def batches(self, within: Within = lambda _: nullcontext()) -> Batches:
        for batch in self._read():
            with within(batch):
                logits, target, counts = self._answers(batch)
            logs = logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
            right = (logits.argmax(-1) == target) & counts
            yield (
                batch.numbers.tolist(),
                -(logs * counts).sum(-1),
                right.sum(-1).to(logs),
                counts.sum(-1).to(logs),
            )

    @torch.inference_mode()
    def sure(self) -> NDArray[np.float64]:
        """Of every text the chances that the model gives its guesses, summed."""
        found = np.zeros(len(self.texts))
        for batch in self._read():
            logits, _, counts = self._answers(batch)
            sums = (logits.softmax(-1).amax(-1) * counts).sum(-1)
            found[batch.numbers] = sums.double().cpu().numpy()
        return found

    def _read(self) -> Iterator[ReadBatch]:
        return read_batches(
            [text.pieces for text in self.texts],
            self.subject.tokenizer.specials.pad,
            self.subject.text_model.device,
            [text.parts for text in self.texts] if self.texts[0].segmented else None,
            PLACES_AT_ONCE,
        )

    def _answers(self, batch: ReadBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (B, m, V), what is right (B, m), and which of these count."""
        model, pieces = self.subject.text_model.model, batch.pieces
        if self.subject.text_model.continues:
            states = model(pieces, batch.coordinates, reading_rule(model))
            real = torch.tensor(batch.lengths, device=pieces.device)[:, None]
            counts = torch.arange(1, pieces.shape[1], device=pieces.device) < real
            return model.logits(states[:, :-1]), pieces[:, 1:], counts
        where, counts = self._places(batch)
        hidden = torch.zeros_like(pieces, dtype=torch.bool)
        hidden.scatter_(1, where, True)
        mask = self.subject.tokenizer.specials.mask
        states = states_asked(model, pieces, batch.coordinates, hidden, where, mask)
        return model.logits(states), pieces.gather(1, where), counts

    def _places(self, batch: ReadBatch) -> tuple[Tensor, Tensor]:
        """Which places are asked for, (B, m), and which of these count."""
        chosen = [self.places(int(number)) for number in batch.numbers]
        most = max(map(len, chosen))
        where = torch.tensor([[*own, *([own[-1]] * (most - len(own)))] for own in chosen])
        sizes = torch.tensor([len(own) for own in chosen])
        counts = torch.arange(most) < sizes[:, None]
        return where.to(batch.pieces.device), counts.to(batch.pieces.device)

    def places(self, number: int) -> list[int]:
        """Those of a text that are asked for."""
        inside = np.flatnonzero(self.texts[number].word >= 0)
        # Counted from the first of them: what is put in front of a text changes nothing.
        drawn = uniform(key(self.seed, "asking"), number, inside - inside[0] + 1)
        least = np.sort(drawn)[max(1, round(SHARE * len(inside))) - 1]
        return inside[drawn <= least].tolist()
