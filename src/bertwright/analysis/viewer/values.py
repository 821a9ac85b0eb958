"""What the viewer shows of a text: what every place looks at, in four ways; the queries and keys
that it comes from; what the model would name in every place; the nearest words in every layer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.attention.rollout import rollout
from bertwright.analysis.findings import Found
from bertwright.analysis.geometry.contextuality import unit
from bertwright.analysis.identifiability.effective import (
    effective,
    head_outputs,
    lacks_head_outputs,
)
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.analysis.word_states import word_states
from bertwright.model.hidden import states_asked
from bertwright.model.reading import read_batches

Array = NDArray[Any]

WEIGHTS, VALUES = "blocks.*.attention.weights", "blocks.*.attention.value"
QUERIES = ("blocks.*.attention.query", "blocks.*.attention.key")

GUESSES, NEIGHBOURS = 5, 3

SAME = 1e-6
"""What two attentions may differ by."""


@dataclass(frozen=True)
class Guessed:
    """Of one place the likeliest pieces, how likely they are, and how likely its own is."""

    pieces: list[str]
    chances: list[float]
    own: float


@dataclass
class TextValues:
    """One text.

    Attributes:
        pieces: (T,) as they are spelled.
        word: (T,) which word each is part of, -1 for special ones.
        words: as they are written.
        arrays: ``weights`` (layers, H, T, T), ``effective`` the same, only where it differs from
            the weights, ``lengths`` of what heads write of each place (layers, H, T), ``rollout``
            (layers, T, T), ``query`` and ``key`` (layers, H, T, d); those that the model has.
        guesses: of every place, None for special ones; empty for a model that fills no places.
        neighbours: (layers + 1, W, n) numbers of words among all that may be neighbours, and their
            cosines.
    """

    pieces: list[str]
    word: list[int]
    words: list[str]
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    guesses: list[Guessed | None] = field(default_factory=list["Guessed | None"])
    neighbours: tuple[Array, Array] | None = None


def text_values(case: Case, neurons: bool) -> list[TextValues]:
    """Everything but neighbours; queries and keys only with ``neurons``."""
    subject = case.subject
    found = [
        TextValues(
            [subject.tokenizer.piece(piece) for piece in text.pieces],
            text.word.tolist(),
            list(text.words),
        )
        for text in case.texts
    ]
    if lacks_attention(subject) is None:
        wanted = (WEIGHTS, VALUES, *QUERIES) if neurons else (WEIGHTS, VALUES)
        listen(subject, case.texts, [_Watching(subject, found, wanted)])
    if lacks_guesses(subject) is None:
        for text, own in zip(case.texts, found, strict=True):
            own.guesses = guesses(subject, text)
    return found


def lacks_attention(subject: Subject) -> str | None:
    """Why there is nothing to be seen of attention, in words."""
    return subject.lacks(WEIGHTS, VALUES)


def lacks_guesses(subject: Subject) -> str | None:
    """Why no place is named, in words."""
    if not subject.text_model.names_pieces:
        return "the model names no pieces"
    if subject.text_model.continues:
        return "the model names what comes next, and fills no places"
    return None


class _Watching:
    """Keeps what the heads of every text do."""

    def __init__(self, subject: Subject, into: Sequence[TextValues], sites: Sequence[str]) -> None:
        self.subject, self.into, self.sites = subject, into, tuple(sites)

    def hear(self, heard: Heard) -> None:
        """Keep a batch."""
        layers = range(self.subject.num_layers)
        weights = [heard.attention(layer) for layer in layers]
        rolled = rollout([own.mean(1) for own in weights])
        parts = [head_outputs(self.subject, layer) for layer in layers]
        for row, number in enumerate(heard.numbers):
            of, into = slice(len(heard.texts[row])), self.into[number].arrays
            raw = torch.stack([own[row, :, of, of] for own in weights]).double()
            written = torch.stack(
                [
                    heard.of(layer, "attention.value")[row, :, of].double() @ parts[layer]
                    for layer in layers
                ]
            )
            seen = [heard.even(layer)[row, :, of, of] > 0 for layer in layers]
            into["weights"] = _array(raw)
            if lacks_head_outputs(self.subject) is None:
                into["lengths"] = _array(written.norm(dim=-1))
            each = zip(raw, written, seen, strict=True)
            projected = torch.stack([effective(*of_layer)[0] for of_layer in each])
            if not torch.allclose(projected, raw, atol=SAME):
                into["effective"] = _array(projected)
            into["rollout"] = _array(torch.stack([own[row, of, of] for own in rolled]))
            for name in ("query", "key"):
                if f"blocks.*.attention.{name}" in self.sites:
                    own = [heard.of(layer, f"attention.{name}")[row, :, of] for layer in layers]
                    into[name] = _array(torch.stack(own))

    def found(self) -> Found:
        """Nothing but what was kept."""
        return Found([])


@torch.inference_mode()
def guesses(subject: Subject, text: ReadText) -> list[Guessed | None]:
    """What the model names in every place, each hidden alone with the rest of its word."""
    tokenizer, model = subject.tokenizer, subject.text_model.model
    inside = np.flatnonzero(text.word >= 0)
    found: list[Guessed | None] = [None] * len(text)
    rows = [text.pieces] * len(inside)
    parts = [text.parts] * len(inside) if text.segmented else None
    for batch in read_batches(rows, tokenizer.specials.pad, subject.text_model.device, parts):
        places = inside[batch.numbers]
        where = torch.from_numpy(places)[:, None].to(batch.pieces.device)
        same = text.word[None] == text.word[places][:, None]
        later = np.arange(len(text)) >= places[:, None]
        hidden = torch.from_numpy(same & later).to(batch.pieces.device)
        states = states_asked(
            model, batch.pieces, batch.coordinates, hidden, where, tokenizer.specials.mask
        )
        chances = model.logits(states[:, 0]).double().softmax(-1)
        best = chances.topk(min(GUESSES, len(tokenizer.ids)))
        own = chances.gather(1, batch.pieces.gather(1, where))[:, 0]
        for place, values, which, mine in zip(places, best.values, best.indices, own, strict=True):
            names = [tokenizer.piece(int(piece)) for piece in which]
            found[place] = Guessed(names, values.tolist(), float(mine))
    return found


def set_neighbours(case: Case, shown: Sequence[TextValues]) -> list[tuple[int, str]]:
    """Find the nearest words in every layer, by cosine, among those of all other texts of the case,
    of which those that are ``shown`` come first. Returns all words: the text of each, and how it is
    written."""
    own = word_states(case)
    begin = 0
    for number, text in enumerate(shown):
        of = slice(begin, begin + len(text.words))
        begin = of.stop
        near, cosines = [], []
        for layer in own.states:
            along = unit(np.asarray(layer, np.float64))
            likeness = along[of] @ along.T
            # Words of one text are near each other, whatever they are.
            likeness[:, own.text == number] = -np.inf
            best = np.argsort(-likeness, axis=1, kind="stable")[:, :NEIGHBOURS]
            near.append(best)
            cosines.append(np.take_along_axis(likeness, best, 1))
        if len(case.texts) > 1:
            text.neighbours = np.stack(near), np.stack(cosines)
    return list(zip(own.text.tolist(), own.words, strict=True))


def _array(values: Tensor) -> Array:
    return values.float().cpu().numpy()
