"""A masked model adds to prompts: so many hidden places behind each, filled one after another (Wang
and Cho 2019).

The first sweep goes from left to right, while what stands behind is hidden. Every further one hides
each of the places again, in a random order, and fills it by all the others: a step of Gibbs
sampling, though of conditionals that need not belong to one distribution.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.model.generating.continuing import Continuation, Growing, batches, speak
from bertwright.model.generating.decoding import Decoding, only_text, share_of
from bertwright.model.hidden import states_asked
from bertwright.model.model import Model
from bertwright.model.reading import padded
from bertwright.randomness import bits, key
from bertwright.text.tokenizers import Tokenizer


@torch.inference_mode()
def filled(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Growing],
    decoding: Decoding,
    language: int | None = None,
) -> list[Continuation]:
    """Every text with what was added to it; all of it is there at once, so nothing ends early."""
    specials, longest = tokenizer.specials, model.encoder.longest
    for together in batches(texts, decoding.max_new_tokens + 1):
        for text in together:
            room = decoding.max_new_tokens
            if longest is not None:
                room = min(room, longest - len(text.pieces) - 1)
            if room < 1:
                raise UserError(
                    f"a prompt of {len(text.pieces)} pieces leaves no room in the {longest} that "
                    f"the model reads: shorten it ({text.prompt[:40]}...)"
                )
            text.stopped = "limit" if room == decoding.max_new_tokens else "full"
            text.pieces += [specials.mask] * room
            text.logs = [0.0] * room
        for sweep in range(decoding.sweeps):
            orders = [_order(text, decoding.seed, sweep) for text in together]
            for turn in range(max(map(len, orders))):
                asked = [n for n, order in enumerate(orders) if turn < len(order)]
                places = [int(orders[n][turn]) for n in asked]
                some = [together[n] for n in asked]
                _fill(model, tokenizer, some, places, sweep, decoding, language)
        for text in together:
            speak(text, tokenizer, decoding)
    return [text.finished() for text in texts]


def _order(text: Growing, seed: int, sweep: int) -> NDArray[np.int64]:
    """The new places (N,) in the order of a sweep."""
    places = np.arange(text.opened, len(text.pieces))
    if sweep == 0:
        return places
    of = key(seed, "sweep", sweep, text.sample, *text.pieces[: text.opened])
    return places[np.argsort(bits(of, places), kind="stable")]


def _fill(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Growing],
    places: Sequence[int],
    sweep: int,
    decoding: Decoding,
    language: int | None,
) -> None:
    """Hide one place of every text, and fill it."""
    specials, device = tokenizer.specials, model.embedding.device
    for text, place in zip(texts, places, strict=True):
        text.pieces[place] = specials.mask
    rows = [[*text.pieces, specials.end] for text in texts]
    batch = padded(rows, None, np.arange(len(rows)), max(map(len, rows)), specials.pad, device)
    asked = torch.tensor(places, device=device)[:, None]
    hidden = batch.pieces == specials.mask
    spoken = batch.coordinates.spoken(batch.pieces, language)
    states = states_asked(model, batch.pieces, spoken, hidden, asked, specials.mask)
    logits = model.logits(states[:, 0])
    logs = logits.double().log_softmax(-1)
    shares = np.array(
        [
            share_of(
                decoding.seed,
                text.pieces[: text.opened],
                text.sample,
                place - text.opened + sweep * decoding.max_new_tokens,
            )
            for text, place in zip(texts, places, strict=True)
        ]
    )
    present = [[piece for piece in text.pieces if piece != specials.mask] for text in texts]
    chosen = decoding.choose(only_text(tokenizer, logits), present, shares).tolist()
    for row, (text, place, piece) in enumerate(zip(texts, places, chosen, strict=True)):
        text.pieces[place] = piece
        text.logs[place - text.opened] = float(logs[row, piece])
