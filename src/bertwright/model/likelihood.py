"""How likely a text is to a model that reads it in one direction: piece by piece, in one pass."""

from collections.abc import Sequence

import torch

from bertwright.encoder.visibility import Visibility, Window, is_empty
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.model.reading import read_batches
from bertwright.objectives.causal import Causal
from bertwright.text.tokenizers import Tokenizer

LIKELIHOOD_BUDGET = 4096


def reading_rule(model: Model) -> Visibility:
    """Who sees whom where a text is read in one direction.

    A model with a memory sees as many places back as it remembers: every place of its training that
    does not stand at the beginning saw at least those.

    Errors: UserError for a model that reads in the other direction.
    """
    rule, reach = model.encoder.rule & Causal().visibility, model.recipe.encoder.reach
    if is_empty(rule):
        raise UserError(
            f"{model.recipe.name} reads texts from their end: it cannot say what comes next"
        )
    return rule if reach is None else rule & Window(size=reach)


@torch.inference_mode()
def log_probabilities(
    model: Model, rows: Sequence[Sequence[int]], padding: int, language: int | None = None
) -> list[list[float]]:
    """Of every piece of every row but the first, given those before it, in nats and float64."""
    rule, device = reading_rule(model), model.embedding.device
    found: list[list[float]] = [[]] * len(rows)
    for batch in read_batches(rows, padding, device, budget=LIKELIHOOD_BUDGET):
        states = model(batch.pieces, batch.coordinates.spoken(batch.pieces, language), rule)
        for row, (number, length) in enumerate(zip(batch.numbers, batch.lengths, strict=True)):
            logs = model.logits(states[row, : length - 1]).double().log_softmax(-1)
            found[number] = logs.gather(1, batch.pieces[row, 1:length, None])[:, 0].tolist()
    return found


def log_likelihoods(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], language: int | None = None
) -> list[float]:
    """One number per text, in nats; texts are cut to the longest row. ``language`` is the number of
    the one they are in."""
    specials, longest = tokenizer.specials, model.encoder.longest
    opening = model.recipe.assembly.opening(specials)
    rows = [[opening, *tokenizer.encode(text)][:longest] for text in texts]
    return [sum(logs) for logs in log_probabilities(model, rows, specials.pad, language)]
