"""Check which positions influence each other, by changing tokens and comparing hidden states.

Uses the recipe's encoder with a single block: masks are the same in every block, and one block is
fast at any width.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import TokenInfoArrays
from bertwright.encoder.depth import StackConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models.model import DeviceBatch
from bertwright.modules.attention.mask import Visibility, is_causal
from bertwright.modules.initialisation import initialise
from bertwright.objectives.objective import Objective, combined_visibility
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor.batch_samples import SampledBatches
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity

MAX_SEQUENCES = 8
"""Maximum number of sequences to compare."""

MIN_CHANGE = 1e-6
"""A float32 hidden state that changes by less counts as unchanged."""


def check_isolation(
    samples: SampledBatches, recipe: Recipe, objectives: Sequence[Objective], vocab_size: int
) -> list[Diagnostic]:
    """Check the isolation of documents, of padding and of the future, where applicable."""
    visibility = recipe.encoder.visibility & combined_visibility(objectives)
    batch = samples.batch
    document_ids = batch.token_info.document_ids
    diagnostics: list[Diagnostic] = []

    def measure(sequences: NDArray[np.int64], changed: NDArray[np.bool_]) -> NDArray[np.float32]:
        return measure_influence(recipe, visibility, batch, sequences, changed, vocab_size)

    if document_ids is not None:
        packed = np.flatnonzero(document_ids.max(axis=1) > 0)[:MAX_SEQUENCES]
        padded = np.flatnonzero((document_ids < 0).any(axis=1))[:MAX_SEQUENCES]
        if len(packed):
            documents = document_ids[packed]
            change = measure(packed, documents == 0)[documents > 0]
            message = "positions see another document of their sequence"
            advice = "set encoder.visibility.kind=document"
            diagnostics.append(_leak_diagnostic("documents", change, "warning", message, advice))
        if len(padded):
            documents = document_ids[padded]
            change = measure(padded, documents < 0)[documents >= 0]
            message, advice = "positions see padding", "correct the masks of the mixer"
            diagnostics.append(_leak_diagnostic("padding", change, "error", message, advice))
    if is_causal(visibility):
        num_sequences, length = min(MAX_SEQUENCES, len(batch.token_ids)), batch.token_ids.shape[1]
        is_late = np.broadcast_to(np.arange(length) >= length // 2, (num_sequences, length))
        change = measure(np.arange(num_sequences), is_late)[~is_late]
        message, advice = "positions see later ones", "correct the causal visibility or the mixer"
        diagnostics.append(_leak_diagnostic("future", change, "error", message, advice))
    return diagnostics


@torch.no_grad()
def measure_influence(
    recipe: Recipe,
    visibility: Visibility,
    batch: Batch,
    sequences: NDArray[np.int64],
    changed_positions: NDArray[np.bool_],
    vocab_size: int,
) -> NDArray[np.float32]:
    """Return (R, L): how much hidden states change if the tokens at ``changed_positions`` do."""
    encoder = _single_block_encoder(recipe, vocab_size)
    device_batch = DeviceBatch(_select_sequences(batch, sequences))
    token_ids, token_info = device_batch.token_ids, device_batch.token_info
    is_changed = torch.from_numpy(changed_positions.copy())
    changed_ids = torch.where(is_changed, (token_ids + 1) % vocab_size, token_ids)
    before, after = (encoder(ids, token_info, visibility) for ids in (token_ids, changed_ids))
    return (after - before).abs().amax(dim=-1).float().numpy()


def _select_sequences(batch: Batch, sequences: NDArray[np.int64]) -> Batch:
    """Return some sequences of a batch, without targets."""
    arrays = {name: values[sequences] for name, values in batch.token_info.arrays().items()}
    return Batch(batch.token_ids[sequences], TokenInfoArrays(**arrays), {}, 0)


def _single_block_encoder(recipe: Recipe, vocab_size: int) -> Encoder:
    config = recipe.encoder.model_copy(update={"depth": StackConfig(layers=1)})
    encoder = Encoder(config, vocab_size)
    initialise(encoder, config.initialisation, recipe.seed)
    return encoder


def _leak_diagnostic(
    check: str, change: NDArray[np.float32], severity: Severity, message: str, advice: str
) -> Diagnostic:
    num_leaking = int((change > MIN_CHANGE).sum())
    return Diagnostic(
        f"masks.{check}",
        severity if num_leaking else "ok",
        f"{num_leaking:,} of {change.size:,} {message}",
        advice,
        {"leaking": num_leaking, "largest_change": float(change.max(initial=0.0))},
    )
