"""Heads and feed-forwards of a fine-tuned model that are left out: which, by what they matter, and
how training goes on without them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.analysis.dynamics.tagging import Tagging
from bertwright.analysis.subject import Subject
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.stream import Coordinates
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure

Floats = NDArray[np.float64]
Chosen = NDArray[np.bool_]

HEADS_SITE, FEED_FORWARD_SITE = "attention.context", "feed_forward.output"

STEP = 0.1
"""The share of heads that goes at a time, and with them one feed-forward."""

ENOUGH = 0.9
"""Of the score of the whole: below it nothing more goes."""

MOST_SENTENCES = 24
"""By which importance is estimated."""


@dataclass(frozen=True)
class Mask:
    """What is there: heads (layers, H), and feed-forwards (layers,)."""

    heads: Chosen
    feed_forwards: Chosen

    @staticmethod
    def whole(subject: Subject) -> "Mask":
        """Everything."""
        shape = subject.num_layers, subject.num_heads
        return Mask(np.ones(shape, np.bool_), np.ones(shape[0], np.bool_))

    @property
    def share(self) -> float:
        """Of the heads that are there."""
        return float(self.heads.mean())

    def drawn(self, generator: np.random.Generator, outside: bool) -> "Mask":
        """As many of either kind, drawn from all, or first from those that are not there."""
        return Mask(*(_drawn(own, generator, outside) for own in (self.heads, self.feed_forwards)))

    def gating(self, encoder: Encoder) -> AbstractContextManager[None]:
        """An encoder without the rest."""
        heads, feed_forwards = (torch.from_numpy(own) for own in (self.heads, self.feed_forwards))
        return encoder.gate(_gates(heads, feed_forwards))


def _drawn(own: Chosen, generator: np.random.Generator, outside: bool) -> Chosen:
    order = generator.permutation(own.size)
    if outside:
        order = order[np.argsort(own.ravel()[order], kind="stable")]
    found = np.zeros(own.size, np.bool_)
    found[order[: own.sum()]] = True
    return found.reshape(own.shape)


def _gates(heads: Tensor, feed_forwards: Tensor) -> dict[str, Tensor]:
    gates = {f"blocks.{n}.{HEADS_SITE}": own[:, None, None] for n, own in enumerate(heads)}
    return gates | {f"blocks.{n}.{FEED_FORWARD_SITE}": own for n, own in enumerate(feed_forwards)}


def pruned(subject: Subject, tuned: FineTuned, tagging: Tagging) -> Mask:
    """What is left when the least important of a fine-tuned model go, a few at a time, for as long
    as enough of the score on what chooses is left (section 3.2), and more than one answer to all of
    it would have: nine tenths of that are left by no head at all."""
    mask, encoder = Mask.whole(subject), tuned.net.encoder
    enough = ENOUGH * _score(tuned, tagging.choosing)
    while mask.heads.any():
        heads, feed_forwards = importances(tuned, tagging.learned[:MOST_SENTENCES], mask)
        less = Mask(
            _without_least(mask.heads, heads, max(1, round(STEP * mask.heads.size))),
            _without_least(mask.feed_forwards, feed_forwards, 1),
        )
        with less.gating(encoder):
            left = _score(tuned, tagging.choosing)
            if left < enough or left <= tagging.most_alike:
                return mask
        mask = less
    return mask


def importances(
    tuned: FineTuned, sentences: Sequence[TaggedWords], mask: Mask
) -> tuple[Floats, Floats]:
    """The mean over sentences of the slope of the loss in the gates of heads, (layers, H), divided
    by the length of those of their layer, and of feed-forwards, (layers,)."""
    net, answering = tuned.net, tuned.answering
    device = tuned.device
    own = (torch.from_numpy(each).float() for each in (mask.heads, mask.feed_forwards))
    gates = [gate.to(device).requires_grad_() for gate in own]
    sums = [torch.zeros_like(gate) for gate in gates]
    rows = answering.rows(tuned.maker, sentences)
    for row in rows:
        pieces = torch.tensor([row.pieces], device=device)
        target = torch.tensor(answering.targets([row], sentences[row.example]), device=device)
        with torch.enable_grad(), net.encoder.gate(_gates(*gates)):
            said = net(pieces, Coordinates.plain(pieces), pieces.new_tensor(row.places))
            slopes = torch.autograd.grad(F.cross_entropy(said, target.long()), gates)
        for total, slope in zip(sums, slopes, strict=True):
            total += slope.abs() / len(rows)
    heads, feed_forwards = (total.double().cpu().numpy() for total in sums)
    lengths = np.linalg.norm(heads, axis=1, keepdims=True)
    return heads / np.maximum(lengths, 1e-12), feed_forwards


def _without_least(there: Chosen, importance: Floats, number: int) -> Chosen:
    left = there.copy()
    order = np.argsort(np.where(there, importance, np.inf), axis=None, kind="stable")
    left.ravel()[order[: min(number, int(there.sum()))]] = False
    return left


def _score(tuned: FineTuned, sentences: Sequence[TaggedWords]) -> float:
    said = [prediction.answer for prediction in tuned.predict(sentences)]
    return tuned.task.answer.metric("accuracy")([own.tags for own in sentences], said)


class LeftOut(Procedure):
    """In training what a mask leaves out writes nothing, from the first step to the last: the
    weights by which it would stay at 0. Of parameters in float32, which are those that are
    trained."""

    name = "left-out"

    def __init__(self, encoder: Encoder, mask: Mask) -> None:
        self._weights = [*_weights(encoder, mask)]

    def before_step(self, place: Place) -> None:
        self.after_update(place)

    @torch.no_grad()
    def after_update(self, place: Place) -> None:
        for parameter, kept in self._weights:
            parameter.mul_(kept)


def _weights(encoder: Encoder, mask: Mask) -> list[tuple[nn.Parameter, Tensor]]:
    """By which parameters heads and feed-forwards write, and what these are multiplied with."""
    found: list[tuple[nn.Parameter, Tensor]] = []
    for layer, block in enumerate(encoder.blocks):
        known = dict(block.named_parameters())
        weight = known["sublayers.attention.output.weight"]
        heads = torch.from_numpy(mask.heads[layer]).to(weight)
        found.append((weight, heads.repeat_interleave(weight.shape[1] // len(heads))))
        feed_forward = torch.tensor(float(mask.feed_forwards[layer]))
        for name in ("weight", "bias"):
            if (own := known.get(f"sublayers.feed_forward.down.{name}")) is not None:
                found.append((own, feed_forward))
    return found


def lacks_parts(subject: Subject) -> str | None:
    """Why its heads and feed-forwards cannot be left out one by one, in words."""
    wanted = {"sublayers.attention.output.weight", "sublayers.feed_forward.down.weight"}
    blocks = list(subject.encoder.blocks)
    if not all(wanted <= dict(block.named_parameters()).keys() for block in blocks):
        return "its blocks are not made of heads and feed-forwards alone"
    weights = [dict(b.named_parameters())["sublayers.attention.output.weight"] for b in blocks]
    if len({id(weight) for weight in weights}) < len(weights):
        return "its blocks share their parameters: none can go alone"
    return subject.lacks(f"blocks.*.{HEADS_SITE}")
