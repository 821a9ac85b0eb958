"""Names of graph inputs and outputs, and random inputs.

Imports only numpy, so that a process that times a graph starts fast.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bertwright.core.rng import stream_key

GraphInputs = Mapping[str, NDArray[np.int64]]

INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS, LANGS = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "langs",
)
"""Inputs by their Transformers names, each (B, L) int64."""

LAST_HIDDEN_STATE, LOGITS = "last_hidden_state", "logits"
"""Float32 outputs: hidden states (B, L, D), and task or LM logits (B, K) or (B, L, K)."""

SENTENCE_EMBEDDING, PROBABILITIES, START_LOGITS, END_LOGITS = (
    "sentence_embedding",
    "probabilities",
    "start_logits",
    "end_logits",
)
"""Float32 outputs: (B, D), the shape of the logits, and (B, L) for the span of an answer."""


def random_graph_inputs(
    input_names: Sequence[str], vocab_size: int, batch_size: int, sequence_length: int
) -> GraphInputs:
    """Return random inputs; in a batch, the first sequence is padded and the last one is empty."""
    generator = np.random.default_rng(stream_key(batch_size, "parity", sequence_length))
    attention_mask = np.ones((batch_size, sequence_length), np.int64)
    if batch_size > 1:
        attention_mask[0, (sequence_length + 1) // 2 :], attention_mask[-1] = 0, 0
    inputs = {name: np.zeros((batch_size, sequence_length), np.int64) for name in input_names}
    inputs[INPUT_IDS] = generator.integers(0, vocab_size, (batch_size, sequence_length))
    inputs[ATTENTION_MASK] = attention_mask
    if TOKEN_TYPE_IDS in inputs:
        inputs[TOKEN_TYPE_IDS][:, sequence_length // 3 :] = 1
    return inputs
