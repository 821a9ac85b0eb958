"""Generation with a masked model: append masks to a prompt and fill them (Wang and Cho 2019).

The first sweep fills the masks from left to right. Each further sweep masks and resamples every new
position in random order. This is Gibbs sampling, although the conditional distributions need not
belong to a joint distribution.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.core.rng import random_bits, stream_key
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.generation.config import (
    GenerationConfig,
    mask_special_logits,
    sampling_uniform,
)
from bertwright.models.generation.sampling import (
    GeneratedText,
    GenerationState,
    length_batches,
    update_text,
)
from bertwright.models.model import Model
from bertwright.models.scoring.masked_states import masked_hidden_states
from bertwright.models.text_batches import pad_sequences


@torch.inference_mode()
def fill_appended_masks(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[GenerationState],
    config: GenerationConfig,
    language_id: int | None = None,
) -> list[GeneratedText]:
    """Append masks to every text and fill them."""
    specials, max_length = tokenizer.special_tokens, model.encoder.max_length
    for batch in length_batches(texts, config.max_new_tokens + 1):
        for text in batch:
            num_masks = config.max_new_tokens
            if max_length is not None:
                num_masks = min(num_masks, max_length - len(text.token_ids) - 1)
            if num_masks < 1:
                raise UserError(
                    f"a prompt of {count_noun(len(text.token_ids), 'token')} leaves no room in the "
                    f"model's maximum of {max_length}: shorten it ({text.prompt[:40]}...)"
                )
            text.finish_reason = "limit" if num_masks == config.max_new_tokens else "full"
            text.token_ids += [specials.mask] * num_masks
            text.log_probabilities = [0.0] * num_masks
        for sweep in range(config.sweeps):
            orders = [_sweep_positions(text, config.seed, sweep) for text in batch]
            for step in range(max(map(len, orders))):
                active = [index for index, order in enumerate(orders) if step < len(order)]
                positions = [int(orders[index][step]) for index in active]
                some = [batch[index] for index in active]
                _fill_positions(model, tokenizer, some, positions, sweep, config, language_id)
        for text in batch:
            update_text(text, tokenizer, config)
    return [text.result() for text in texts]


def _sweep_positions(text: GenerationState, seed: int, sweep: int) -> NDArray[np.int64]:
    """Return the new positions (N,) of a text in the order of a sweep."""
    positions = np.arange(text.prompt_length, len(text.token_ids))
    if sweep == 0:
        return positions
    stream = stream_key(seed, "sweep", sweep, text.sample, *text.token_ids[: text.prompt_length])
    return positions[np.argsort(random_bits(stream, positions), kind="stable")]


def _fill_positions(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[GenerationState],
    positions: Sequence[int],
    sweep: int,
    config: GenerationConfig,
    language_id: int | None,
) -> None:
    """Mask one position of every text and sample its token."""
    specials, device = tokenizer.special_tokens, model.embedding_table.device
    for text, position in zip(texts, positions, strict=True):
        text.token_ids[position] = specials.mask
    sequences = [[*text.token_ids, specials.end] for text in texts]
    batch = pad_sequences(
        sequences, None, np.arange(len(sequences)), max(map(len, sequences)), specials.pad, device
    )
    position_tensor = torch.tensor(positions, device=device)[:, None]
    is_masked = batch.token_ids == specials.mask
    token_info = batch.token_info.with_language(batch.token_ids, language_id)
    states = masked_hidden_states(
        model, batch.token_ids, token_info, is_masked, position_tensor, specials.mask
    )
    logits = model.logits(states[:, 0])
    log_probabilities = logits.double().log_softmax(-1)
    uniforms = np.array(
        [
            sampling_uniform(
                config.seed,
                text.token_ids[: text.prompt_length],
                text.sample,
                position - text.prompt_length + sweep * config.max_new_tokens,
            )
            for text, position in zip(texts, positions, strict=True)
        ]
    )
    present_ids = [
        [token_id for token_id in text.token_ids if token_id != specials.mask] for text in texts
    ]
    sampled = config.sample(mask_special_logits(tokenizer, logits), present_ids, uniforms).tolist()
    for row, (text, position, token_id) in enumerate(zip(texts, positions, sampled, strict=True)):
        text.token_ids[position] = token_id
        text.log_probabilities[position - text.prompt_length] = float(
            log_probabilities[row, token_id]
        )
