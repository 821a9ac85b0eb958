"""Log-likelihoods of causal models, and pseudo-log-likelihoods of masked models."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.model import Model
from bertwright.models.scoring.masked_states import masked_hidden_states
from bertwright.models.text_batches import add_special_tokens, text_batches
from bertwright.modules.attention.mask import (
    CausalVisibility,
    Visibility,
    WindowVisibility,
    sees_self_only,
)

SCORING_BATCH_TOKENS = 4096

LOGIT_ROWS = 1024
"""Positions whose logits are computed at once."""


def causal_visibility(model: Model) -> Visibility:
    """Return the model's attention mask restricted to previous positions.

    A model with memory attends as far back as its memory reaches, as in training. Errors: UserError
    for a right-to-left model.
    """
    visibility = model.encoder.visibility & CausalVisibility()
    max_lookback = model.recipe.encoder.max_lookback
    if sees_self_only(visibility):
        raise UserError(
            f"{model.recipe.name} reads texts from right to left: it cannot predict next tokens"
        )
    return visibility if max_lookback is None else visibility & WindowVisibility(size=max_lookback)


@torch.inference_mode()
def token_log_probabilities(
    model: Model, sequences: Sequence[Sequence[int]], pad_id: int, language_id: int | None = None
) -> list[list[float]]:
    """Return the log-probability of each token except the first, given those before it."""
    visibility, device = causal_visibility(model), model.embedding_table.device
    result: list[list[float]] = [[]] * len(sequences)
    for batch in text_batches(sequences, pad_id, device, batch_tokens=SCORING_BATCH_TOKENS):
        token_info = batch.token_info.with_language(batch.token_ids, language_id)
        states = model(batch.token_ids, token_info, visibility)[:, :-1]
        lengths = torch.as_tensor(batch.lengths, device=device)
        has_next = torch.arange(1, batch.token_ids.shape[1], device=device) < lengths[:, None]
        labels = batch.token_ids[:, 1:][has_next]
        scores = label_log_probabilities(model, states[has_next], labels)
        rows = scores.split([length - 1 for length in batch.lengths])
        for index, row in zip(batch.indices, rows, strict=True):
            result[index] = row.tolist()
    return result


def label_log_probabilities(model: Model, states: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probability of each label, given the hidden state that predicts it.

    ``states`` are (N, D), ``labels`` (N,), and the result is (N,) float64. At most
    ``LOGIT_ROWS`` distributions over the vocabulary are in memory at once.
    """
    scores: list[Tensor] = []
    for chunk, targets in zip(states.split(LOGIT_ROWS), labels.split(LOGIT_ROWS), strict=True):
        logits = model.logits(chunk).float()
        label_logits = logits.gather(1, targets[:, None])[:, 0]
        scores.append(label_logits.double() - logits.logsumexp(-1).double())
    return torch.cat(scores)


def log_likelihoods(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], language_id: int | None = None
) -> list[float]:
    """Return the log-likelihood of each text in nats; texts are truncated to the maximum length."""
    specials, max_length = tokenizer.special_tokens, model.encoder.max_length
    start_id = model.recipe.assembly.start_token(specials)
    sequences = [[start_id, *tokenizer.encode(text)][:max_length] for text in texts]
    return [*map(sum, token_log_probabilities(model, sequences, specials.pad, language_id))]


@torch.inference_mode()
def pseudo_log_likelihoods(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], language_id: int | None = None
) -> list[float]:
    """Return the pseudo-log-likelihood of each text in nats (Kauf and Ivanova 2023).

    Each token is predicted with itself and the later tokens of its word masked.
    """
    sequences: list[list[int]] = []
    targets: list[tuple[int, int, int]] = []
    specials, device = tokenizer.special_tokens, model.embedding_table.device
    for index, text in enumerate(texts):
        ids, starts = tokenizer.encode_with_word_starts(text)
        assembly = model.recipe.assembly
        token_ids = add_special_tokens(ids, specials, model.encoder.max_length, assembly)
        ends, start = _word_ends(starts, len(ids)), assembly.text_start
        text_end = start + len(token_ids) - 2
        for position in range(start, text_end):
            sequences.append(token_ids)
            targets.append((index, position, min(ends[position - start] + start, text_end)))
    scores = np.zeros(len(texts))
    for batch in text_batches(sequences, specials.pad, device, batch_tokens=SCORING_BATCH_TOKENS):
        bounds = [targets[index][1:] for index in batch.indices]
        first, end = torch.tensor(bounds, device=device).T[..., None]
        position = batch.token_info.index
        hidden_states = masked_hidden_states(
            model,
            batch.token_ids,
            batch.token_info.with_language(batch.token_ids, language_id),
            (first <= position) & (position < end),
            first,
            specials.mask,
        )
        labels = batch.token_ids.gather(1, first)[:, 0]
        token_scores = label_log_probabilities(model, hidden_states[:, 0], labels)
        np.add.at(scores, [targets[i][0] for i in batch.indices], token_scores.cpu().numpy())
    return scores.tolist()


@torch.inference_mode()
def cloze_log_probabilities(
    model: Model, tokenizer: Tokenizer, sequences: Sequence[Sequence[int]], parts: Sequence[slice]
) -> list[list[float]]:
    """Return the log-probabilities of the tokens of one span per sequence, all masked at once."""
    specials, device = tokenizer.special_tokens, model.embedding_table.device
    result: list[list[float]] = [[]] * len(sequences)
    for batch in text_batches(sequences, specials.pad, device, batch_tokens=SCORING_BATCH_TOKENS):
        bounds = [(parts[index].start, parts[index].stop) for index in batch.indices]
        first, end = torch.tensor(bounds, device=device).T[..., None]
        position = batch.token_info.index
        positions = (first + torch.arange(int((end - first).max()), device=device)).minimum(end - 1)
        hidden_states = masked_hidden_states(
            model,
            batch.token_ids,
            batch.token_info,
            (first <= position) & (position < end),
            positions,
            specials.mask,
        )
        is_target = first + torch.arange(positions.shape[1], device=device) < end
        labels = batch.token_ids.gather(1, positions)[is_target]
        scores = label_log_probabilities(model, hidden_states[is_target], labels)
        rows = scores.split([stop - start for start, stop in bounds])
        for index, row in zip(batch.indices, rows, strict=True):
            result[index] = row.tolist()
    return result


def _word_ends(starts: Sequence[int], num_tokens: int) -> list[int]:
    """Return the end of the word of every token."""
    bounds = [0, *(start for start in starts if start > 0), num_tokens]
    return [end for start, end in pairwise(bounds) for _ in range(start, end)]
