"""Prompts are continued, one piece after another."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from bertwright.model.generating.decoding import Decoding, log_softmax, only_text, share_of
from bertwright.model.generating.rows import GrowingRows
from bertwright.text.tokenizers import Tokenizer

PLACES_AT_ONCE = 8192
"""Of the rows that go on together, once they are as long as they may get."""

Stopped = Literal["end", "stop", "limit", "full"]
"""At the piece that ends a document, before one of the stop texts, after as many pieces as were
asked for, or where the model can read no more."""


@dataclass(frozen=True)
class Continuation:
    """What follows a prompt, or where it ``answers`` is said of it by a decoder.

    ``log_probabilities`` are those of ``pieces``, in nats, as the model has them: before
    temperature and truncation.
    """

    prompt: str
    text: str
    pieces: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    stopped: Stopped
    sample: int = 0
    answers: bool = False

    @property
    def whole(self) -> str:
        """The prompt and what follows it; an answer alone."""
        return self.text if self.answers else self.prompt + self.text

    def as_dict(self) -> dict[str, Any]:
        """What ``generate --json`` prints of it."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "sample": self.sample,
            "stopped": self.stopped,
            "tokens": len(self.pieces),
            "log_probability": sum(self.log_probabilities),
        }


@dataclass
class Growing:
    """One text on its way; ``opened`` is how many of ``pieces`` it began with. ``source`` is what
    an encoder reads, where it is a decoder that goes on, from the position ``first``."""

    prompt: str
    pieces: list[int]
    sample: int
    source: tuple[int, ...] = ()
    first: int = 0
    opened: int = 0
    logs: list[float] = field(default_factory=list[float])
    text: str = ""
    stopped: Stopped | None = None

    def __post_init__(self) -> None:
        self.opened = len(self.pieces)

    @property
    def given(self) -> list[int]:
        """What was there in the beginning, in all."""
        return [*self.source, *self.pieces[: self.opened]]

    @property
    def new(self) -> list[int]:
        """What was added."""
        return self.pieces[self.opened :]

    def grown(self, piece: int, log: float) -> "Growing":
        """Another text, with one more piece than this one."""
        other = copy(self)
        other.pieces, other.logs = [*self.pieces, piece], [*self.logs, log]
        return other

    def finished(self) -> Continuation:
        assert self.stopped is not None
        return Continuation(
            self.prompt,
            self.text,
            tuple(self.new),
            tuple(self.logs),
            self.stopped,
            self.sample,
            answers=bool(self.source),
        )


@dataclass(frozen=True)
class Ending:
    """Notes why a text ends here, if it does, and what it then says; ``longest`` is how many pieces
    the model can read."""

    tokenizer: Tokenizer
    decoding: Decoding
    longest: int | None

    def __call__(self, text: Growing) -> None:
        ends = {
            "end": text.pieces[-1] == self.tokenizer.specials.end,
            "limit": len(text.new) >= self.decoding.max_new_tokens,
            "full": self.longest is not None and text.first + len(text.pieces) > self.longest,
        }
        text.stopped = next((reason for reason, true in ends.items() if true), None)  # type: ignore[assignment]
        if text.stopped is not None or self.decoding.stop:
            speak(text, self.tokenizer, self.decoding)


@torch.inference_mode()
def continued(
    texts: Sequence[Growing],
    opened: Callable[[Sequence[Growing]], GrowingRows],
    tokenizer: Tokenizer,
    decoding: Decoding,
    ending: Ending,
) -> list[Continuation]:
    """Every text to its end. ``opened`` begins rows with their first pieces."""
    for together in batches(texts, decoding.max_new_tokens):
        rows = opened(together)
        while together:
            _take_one(together, rows.logits(), tokenizer, decoding)
            for text in together:
                ending(text)
            going = [number for number, text in enumerate(together) if text.stopped is None]
            if going and len(going) < len(together):
                rows.select(going)
            together = [together[number] for number in going]
            if together:
                rows.append([text.pieces[-1] for text in together])
    return [text.finished() for text in texts]


def batches(texts: Sequence[Growing], more: int, rows_each: int = 1) -> Iterator[list[Growing]]:
    """The texts, longest first, as many at a time as there is room for when they have grown."""
    waiting = sorted(texts, key=lambda text: -len(text.given))
    while waiting:
        number = max(1, PLACES_AT_ONCE // (rows_each * (len(waiting[0].given) + more)))
        yield waiting[:number]
        waiting = waiting[number:]


def _take_one(
    texts: Sequence[Growing], logits: torch.Tensor, tokenizer: Tokenizer, decoding: Decoding
) -> None:
    """One more piece for every text, logits (B, V)."""
    found = log_softmax(logits.double().cpu().numpy())
    allowed = only_text(tokenizer, logits, tokenizer.specials.end)
    shares = np.array([share_of(decoding.seed, t.given, t.sample, len(t.new)) for t in texts])
    pieces = decoding.choose(allowed, [text.pieces for text in texts], shares)
    for row, (text, piece) in enumerate(zip(texts, pieces.tolist(), strict=True)):
        text.pieces.append(piece)
        text.logs.append(float(found[row, piece]))


def speak(text: Growing, tokenizer: Tokenizer, decoding: Decoding) -> None:
    """Note what the new pieces say, up to where a stop text begins."""
    text.text = said(tokenizer, text.pieces[: text.opened], text.new)
    before = [text.text.find(stop) for stop in decoding.stop if stop in text.text]
    if before:
        text.text, text.stopped = text.text[: min(before)], "stop"


def said(tokenizer: Tokenizer, prompt: Sequence[int], new: Sequence[int]) -> str:
    """The text of new pieces behind those of a prompt, with the space between them if there is
    one."""
    before, whole = tokenizer.decode(list(prompt)), tokenizer.decode([*prompt, *new])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(list(new))
