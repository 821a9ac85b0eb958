"""Pieces that are put in front of texts so that a model answers otherwise: found by the gradient of
the loss at their vectors, and by trying what it proposes (Wallace et al. 2019, section 2.2)."""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.behaviour.trigger_answers import Answers, Trigger
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.model.reading import ReadBatch

ENTRY = "embeddings.pieces"
"""The vectors of pieces, before anything is added to them."""


def gradient(answers: Answers, trigger: Trigger) -> Tensor:
    """Of the mean loss of an answer with respect to the vector of each piece of the trigger,
    (k, E)."""
    held: list[Tensor] = []

    def entry(own: Tensor) -> Tensor:
        held[:] = [own.detach().requires_grad_()]
        return held[0]

    def within(batch: ReadBatch) -> AbstractContextManager[None]:
        return answers.subject.encoder.replace(ENTRY, entry)

    sums: list[Tensor] = []
    total = 0.0
    with torch.enable_grad():
        for _, loss, _, counts in answers.behind(trigger).batches(within):
            (found,) = torch.autograd.grad(loss.sum(), held)
            sums.append(found[:, 1 : 1 + len(trigger)].sum(0))
            total += float(counts.sum())
    return torch.stack(sums).sum(0) / total


@torch.no_grad()
def vectors_of_pieces(subject: Subject) -> Tensor:
    """The vector of every piece, (V, E), as the model looks it up."""
    every = torch.arange(subject.tokenizer.size, device=subject.text_model.device)
    return subject.encoder.embeddings.pieces(every)


def first_order(answers: Answers, trigger: Trigger, vectors: Tensor) -> Tensor:
    """By how much the loss grows, as its gradient tells, with each piece in the place of each of
    the trigger: (k, V)."""
    slope = gradient(answers, trigger)
    now = (slope * vectors[list(trigger)]).sum(-1, keepdim=True)
    return slope @ vectors.T - now


@dataclass(frozen=True)
class Search:
    """How a trigger is made better: of every place in turn the ``candidates`` of the greatest
    first-order score are tried, and the best is kept if it is better than what stands there.

    Attributes:
        vectors: of all pieces, (V, E).
        allowed: which of them a trigger may have, (V,).
    """

    vectors: Tensor
    allowed: Tensor
    candidates: int

    def step(self, answers: Answers, trigger: Trigger) -> Trigger:
        """A trigger that costs these texts more, or the same one."""
        scores = first_order(answers, trigger, self.vectors)
        scores = scores.masked_fill(~self.allowed, -torch.inf)
        number = min(self.candidates, int(self.allowed.sum()))
        best, worst = trigger, answers.asked(trigger).mean
        for place, proposed in enumerate(scores.topk(number).indices.tolist()):
            for piece in proposed:
                tried = (*best[:place], piece, *best[place + 1 :])
                loss = answers.asked(tried).mean
                if loss > worst:
                    best, worst = tried, loss
        return best

    def drawn(self, size: int, generator: np.random.Generator) -> Trigger:
        """So many pieces at random."""
        pieces: NDArray[np.int64] = generator.choice(self.allowed.nonzero()[:, 0].cpu(), size)
        return tuple(pieces.tolist())


def allowed_pieces(subject: Subject, avoided: Collection[str] = ()) -> Tensor:
    """Which pieces one could write, (V,) bool: no special ones, none that is a part of a character,
    none that is unused or says one of ``avoided``."""
    tokenizer = subject.tokenizer
    found = torch.zeros(tokenizer.size, dtype=torch.bool)
    for piece in tokenizer.ids.tolist():
        said = tokenizer.decode([piece]).strip().lower()
        unwritten = not said or "\ufffd" in said or said.startswith(("[unused", "<extra_id_"))
        found[piece] = not unwritten and said not in avoided
    found[list(tokenizer.specials.all)] = False
    return found.to(subject.text_model.device)


def most_frequent(texts: Sequence[ReadText], search: Search) -> int:
    """The piece that stands most often in texts, of those that a trigger may have; the first of
    these where none does."""
    counts = Counter(piece for text in texts for piece in text.pieces if search.allowed[piece])
    first = int(search.allowed.nonzero()[0])
    return min(counts, key=lambda piece: (-counts[piece], piece), default=first)
