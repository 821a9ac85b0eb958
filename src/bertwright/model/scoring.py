"""How likely a text is to a model that reads both ways.

The pseudo-log-likelihood hides one piece at a time and sums what its place says (Salazar et al.
2020). Where a word has several pieces, those after the scored one are hidden with it, or the model
would read the word off its own end (Kauf and Ivanova 2023).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from bertwright.model.hidden import states_asked
from bertwright.model.model import Model
from bertwright.model.reading import read_batches, single
from bertwright.text.tokenizers import Tokenizer

SCORING_BUDGET = 4096


@torch.inference_mode()
def pseudo_log_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    language: int | None = None,
) -> list[float]:
    """One number per text, in nats; ``language`` is the number of the one they are in."""
    rows: list[list[int]] = []
    asked: list[tuple[int, int, int]] = []
    specials, device = tokenizer.specials, model.embedding.device
    for number, text in enumerate(texts):
        ids, starts = tokenizer.encode_words(text)
        whole = single(ids, specials, model.encoder.longest)
        ends = _word_ends(starts, len(ids))
        for place in range(1, len(whole) - 1):
            rows.append(whole)
            asked.append((number, place, min(ends[place - 1] + 1, len(whole) - 1)))
    scores = np.zeros(len(texts))
    for batch in read_batches(rows, specials.pad, device, budget=SCORING_BUDGET):
        first, end = torch.tensor([asked[n][1:] for n in batch.numbers], device=device).T[..., None]
        place = batch.coordinates.place
        states = states_asked(
            model,
            batch.pieces,
            batch.coordinates.spoken(batch.pieces, language),
            (first <= place) & (place < end),
            first,
            specials.mask,
        )
        logs = torch.log_softmax(model.logits(states[:, 0]).float(), -1)
        targets = batch.pieces.gather(1, first)
        found = logs.gather(1, targets).squeeze(1).double().cpu().numpy()
        np.add.at(scores, [asked[n][0] for n in batch.numbers], found)
    return scores.tolist()


@torch.inference_mode()
def cloze_log_probabilities(
    model: Model,
    tokenizer: Tokenizer,
    rows: Sequence[Sequence[int]],
    parts: Sequence[slice],
) -> list[list[float]]:
    """Of the pieces of one part of every row, all hidden at once, in nats and float64."""
    specials, device = tokenizer.specials, model.embedding.device
    found: list[list[float]] = [[]] * len(rows)
    for batch in read_batches(rows, specials.pad, device, budget=SCORING_BUDGET):
        bounds = [(parts[n].start, parts[n].stop) for n in batch.numbers]
        first, end = torch.tensor(bounds, device=device).T[..., None]
        place = batch.coordinates.place
        where = (first + torch.arange(int((end - first).max()), device=device)).minimum(end - 1)
        states = states_asked(
            model,
            batch.pieces,
            batch.coordinates,
            (first <= place) & (place < end),
            where,
            specials.mask,
        )
        for row, number in enumerate(batch.numbers):
            size = parts[number].stop - parts[number].start
            logs = model.logits(states[row, :size]).double().log_softmax(-1)
            target = batch.pieces[row, parts[number]]
            found[number] = logs.gather(1, target[:, None])[:, 0].tolist()
    return found


def _word_ends(starts: Sequence[int], num_pieces: int) -> list[int]:
    """For every piece, the number of pieces up to the end of its word."""
    bounds = [0, *(start for start in starts if start > 0), num_pieces]
    return [end for begin, end in pairwise(bounds) for _ in range(begin, end)]
