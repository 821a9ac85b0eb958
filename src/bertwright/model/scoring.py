"""How likely a text is to a masked model.

The pseudo-log-likelihood hides one piece at a time and sums what its place says (Salazar et al.
2020). Where a word has several pieces, those after the scored one are hidden with it, or the model
would read the word off its own end (Kauf and Ivanova 2023).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from bertwright.model.model import Model
from bertwright.model.reading import read_batches, single
from bertwright.text.tokenizers import Tokenizer

SCORING_BUDGET = 4096


@torch.inference_mode()
def pseudo_log_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    shift: int,
    device: torch.device,
) -> list[float]:
    """One number per text, in nats."""
    rows: list[list[int]] = []
    asked: list[tuple[int, int, int]] = []
    mask = tokenizer.specials.mask
    for number, text in enumerate(texts):
        ids, starts = tokenizer.encode_words(text)
        whole = single(ids, tokenizer.specials, model.encoder.longest)
        ends = _word_ends(starts, len(ids))
        for place in range(1, len(whole) - 1):
            hidden = list(whole)
            end = min(ends[place - 1] + 1, len(whole) - 1)
            hidden[place:end] = [mask] * (end - place)
            rows.append(hidden)
            asked.append((number, place, whole[place]))
    scores = np.zeros(len(texts))
    for batch in read_batches(rows, tokenizer.specials.pad, device, budget=SCORING_BUDGET):
        states = model(batch.pieces, batch.coordinates)
        places = torch.tensor([asked[n][1] for n in batch.numbers], device=device)
        targets = torch.tensor([asked[n][2] for n in batch.numbers], device=device)
        chosen = states[torch.arange(len(places), device=device), places - shift]
        logs = torch.log_softmax(model.logits(chosen).float(), -1)
        found = logs.gather(1, targets[:, None]).squeeze(1).double().cpu().numpy()
        np.add.at(scores, [asked[n][0] for n in batch.numbers], found)
    return scores.tolist()


@torch.inference_mode()
def cloze_log_probabilities(
    model: Model,
    tokenizer: Tokenizer,
    rows: Sequence[Sequence[int]],
    parts: Sequence[slice],
    shift: int,
) -> list[list[float]]:
    """Of the pieces of one part of every row, all hidden at once, in nats and float64."""
    mask, device = tokenizer.specials.mask, model.embedding.device
    hidden = [
        [*row[: part.start], *[mask] * (part.stop - part.start), *row[part.stop :]]
        for row, part in zip(rows, parts, strict=True)
    ]
    found: list[list[float]] = [[]] * len(rows)
    for batch in read_batches(hidden, tokenizer.specials.pad, device, budget=SCORING_BUDGET):
        states = model(batch.pieces, batch.coordinates)
        for row, number in enumerate(batch.numbers):
            part = parts[number]
            answering = states[row, part.start - shift : part.stop - shift]
            logs = model.logits(answering).double().log_softmax(-1)
            target = torch.tensor(list(rows[number][part]), device=device)
            found[number] = logs.gather(1, target[:, None])[:, 0].tolist()
    return found


def _word_ends(starts: Sequence[int], num_pieces: int) -> list[int]:
    """For every piece, the number of pieces up to the end of its word."""
    bounds = [0, *(start for start in starts if start > 0), num_pieces]
    return [end for begin, end in pairwise(bounds) for _ in range(begin, end)]
