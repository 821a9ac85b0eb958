"""Beam search: several ways to go on stand side by side, and the most probable are kept (Sutskever
et al. 2014, section 3.2; by length, Wu et al. 2016, section 7)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from bertwright.model.generating.continuing import Continuation, Ending, Growing, batches
from bertwright.model.generating.decoding import Decoding, Numbers, log_softmax, only_text
from bertwright.model.generating.rows import GrowingRows
from bertwright.text.tokenizers import Tokenizer


@torch.inference_mode()
def searched(
    texts: Sequence[Growing],
    opened: Callable[[Sequence[Growing]], GrowingRows],
    tokenizer: Tokenizer,
    decoding: Decoding,
    ending: Ending,
) -> list[Continuation]:
    """As many ends of every text as there are beams, or as can be found; the best is sample 0."""
    searches = {id(text): Search([Way(text)], decoding, ending) for text in texts}
    for together in batches(texts, decoding.max_new_tokens, decoding.beams):
        rows = opened(together)
        going = [searches[id(text)] for text in together]
        while going:
            chosen, pieces = _one_more(going, rows.logits(), tokenizer, decoding)
            if pieces:
                rows.select(chosen)
                rows.append(pieces)
            going = [search for search in going if search.going]
    found = list[Continuation]()
    for text in texts:
        for number, way in enumerate(searches[id(text)].ended):
            way.text.sample = number
            found.append(way.text.finished())
    return found


def _one_more(
    searches: Sequence["Search"], logits: torch.Tensor, tokenizer: Tokenizer, decoding: Decoding
) -> tuple[list[int], list[int]]:
    """A step of every search: which rows (N,) go on, in this order, each by which piece (N,)."""
    logs = log_softmax(logits.double().cpu().numpy())
    allowed = np.isfinite(only_text(tokenizer, logits, tokenizer.specials.end))
    there = [way.text.pieces for search in searches for way in search.going]
    judged = np.where(allowed, log_softmax(decoding.penalised(logs, there)), -np.inf)
    chosen, pieces, first = list[int](), list[int](), 0
    for search in searches:
        own = slice(first, first + len(search.going))
        for number, piece in search.step(logs[own], judged[own]):
            chosen.append(first + number)
            pieces.append(piece)
        first = own.stop
    return chosen, pieces


@dataclass
class Way:
    """One way to go on: its text so far, and the log-probability that it is judged by."""

    text: Growing
    total: float = 0.0

    def score(self, length_power: float) -> float:
        """That, divided by a power of the number of pieces: with 0, a longer way is a worse one."""
        return self.total / max(1, len(self.text.new)) ** length_power


@dataclass
class Search:
    """The ways of one text: those that are ``going`` on, the most probable first, and the best that
    have ``ended``."""

    going: list[Way]
    decoding: Decoding
    ending: Ending
    ended: list[Way] = field(default_factory=list[Way])

    def step(self, logs: Numbers, judged: Numbers) -> list[tuple[int, int]]:
        """All ways go on by all pieces, and the best of these stay: from which way (of N) and by
        which piece each of them comes.

        ``logs`` (N, V) are the log-probabilities of the model, ``judged`` those that count.
        """
        beams = self.decoding.beams
        totals = judged + np.array([way.total for way in self.going])[:, None]
        going, came_from = list[Way](), list[tuple[int, int]]()
        # As many again as are wanted: every way may end, by the piece that ends texts.
        for place in _greatest(totals, 2 * beams):
            number, piece = divmod(place, totals.shape[1])
            text = self.going[number].text.grown(piece, float(logs[number, piece]))
            self.ending(text)
            way = Way(text, float(totals[number, piece]))
            if text.stopped is not None:
                self.ended.append(way)
            elif len(going) < beams:
                going.append(way)
                came_from.append((number, piece))
        self.ended.sort(key=lambda way: -way.score(self.decoding.length_power))
        del self.ended[beams:]
        self.going = [] if self._is_over(going) else going
        return came_from[: len(self.going)]

    def _is_over(self, going: Sequence[Way]) -> bool:
        """Whether none that goes on is better, as it stands, than the worst that is kept."""
        if len(self.ended) < self.decoding.beams:
            return False
        power = self.decoding.length_power
        return all(way.score(power) <= self.ended[-1].score(power) for way in going)


def _greatest(totals: Numbers, number: int) -> list[int]:
    """The places of the greatest finite numbers in a flattened array, the greatest first."""
    flat = totals.ravel()
    found = np.arange(flat.size)
    if number < flat.size:
        found = np.sort(np.argpartition(-flat, number)[:number])
    found = found[np.argsort(-flat[found], kind="stable")]
    return found[np.isfinite(flat[found])].tolist()
