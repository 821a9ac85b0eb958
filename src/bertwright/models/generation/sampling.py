"""Sampling: continue prompts token by token."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.generation.config import (
    GenerationConfig,
    log_softmax,
    mask_special_logits,
    sampling_uniform,
)
from bertwright.models.generation.sequences import GrowingSequences

TOKENS_PER_BATCH = 8192
"""Maximum number of tokens of a batch when all its sequences have their final length."""

FinishReason = Literal["end", "stop", "limit", "full"]
"""End token, stop text, ``max_new_tokens``, or maximum sequence length."""


@dataclass(frozen=True)
class GeneratedText:
    """A continuation of a prompt, or a decoder's output for it (``is_decoder_output``).

    ``log_probabilities`` are the model's for ``token_ids``, in nats, before temperature, ``top_k``
    and ``top_p``.
    """

    prompt: str
    text: str
    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    finish_reason: FinishReason
    sample: int = 0
    is_decoder_output: bool = False

    @property
    def full_text(self) -> str:
        """Return the prompt with its continuation, or only the output of a decoder."""
        return self.text if self.is_decoder_output else self.prompt + self.text

    def as_dict(self) -> dict[str, Any]:
        """Return the dictionary that ``generate --json`` prints."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "sample": self.sample,
            "finish_reason": self.finish_reason,
            "tokens": len(self.token_ids),
            "log_probability": sum(self.log_probabilities),
        }


@dataclass
class GenerationState:
    """A text during generation.

    ``token_ids`` begin with ``prompt_length`` prompt tokens. With a decoder, ``source_ids`` are the
    encoder's input, and the output begins at ``first_position``.
    """

    prompt: str
    token_ids: list[int]
    sample: int
    source_ids: tuple[int, ...] = ()
    first_position: int = 0
    prompt_length: int = 0
    log_probabilities: list[float] = field(default_factory=list[float])
    text: str = ""
    finish_reason: FinishReason | None = None

    def __post_init__(self) -> None:
        self.prompt_length = len(self.token_ids)

    @property
    def prompt_ids(self) -> list[int]:
        """Return the token ids of the source and the prompt."""
        return [*self.source_ids, *self.token_ids[: self.prompt_length]]

    @property
    def new_token_ids(self) -> list[int]:
        """Return the generated token ids."""
        return self.token_ids[self.prompt_length :]

    def with_token(self, token_id: int, log_probability: float) -> "GenerationState":
        """Return a copy with one more token."""
        extended = copy(self)
        extended.token_ids = [*self.token_ids, token_id]
        extended.log_probabilities = [*self.log_probabilities, log_probability]
        return extended

    def result(self) -> GeneratedText:
        assert self.finish_reason is not None
        return GeneratedText(
            self.prompt,
            self.text,
            tuple(self.new_token_ids),
            tuple(self.log_probabilities),
            self.finish_reason,
            self.sample,
            is_decoder_output=bool(self.source_ids),
        )


@dataclass(frozen=True)
class StoppingCriteria:
    """A function that sets the finish reason and the text of a state that is complete."""

    tokenizer: Tokenizer
    config: GenerationConfig
    max_length: int | None

    def __call__(self, text: GenerationState) -> None:
        reasons = {
            "end": text.token_ids[-1] == self.tokenizer.special_tokens.end,
            "limit": len(text.new_token_ids) >= self.config.max_new_tokens,
            "full": self.max_length is not None
            and text.first_position + len(text.token_ids) > self.max_length,
        }
        text.finish_reason = next((reason for reason, applies in reasons.items() if applies), None)  # type: ignore[assignment]
        if text.finish_reason is not None or self.config.stop:
            update_text(text, self.tokenizer, self.config)


@torch.inference_mode()
def sample_texts(
    texts: Sequence[GenerationState],
    open_sequences: Callable[[Sequence[GenerationState]], GrowingSequences],
    stopping_criteria: StoppingCriteria,
) -> list[GeneratedText]:
    """Sample every text until it is complete; ``open_sequences`` starts a batch of texts."""
    tokenizer, config = stopping_criteria.tokenizer, stopping_criteria.config
    for batch in length_batches(texts, config.max_new_tokens):
        sequences = open_sequences(batch)
        while batch:
            _append_next_tokens(batch, sequences.logits(), tokenizer, config)
            for text in batch:
                stopping_criteria(text)
            active = [index for index, text in enumerate(batch) if text.finish_reason is None]
            if active and len(active) < len(batch):
                sequences.select(active)
            batch = [batch[index] for index in active]
            if batch:
                sequences.append([text.token_ids[-1] for text in batch])
    return [text.result() for text in texts]


def length_batches(
    texts: Sequence[GenerationState], num_new_tokens: int, sequences_per_text: int = 1
) -> Iterator[list[GenerationState]]:
    """Yield batches of texts, longest first, that fit in ``TOKENS_PER_BATCH`` at full length."""
    waiting = sorted(texts, key=lambda text: -len(text.prompt_ids))
    while waiting:
        batch_size = max(
            1,
            TOKENS_PER_BATCH
            // (sequences_per_text * (len(waiting[0].prompt_ids) + num_new_tokens)),
        )
        yield waiting[:batch_size]
        waiting = waiting[batch_size:]


def _append_next_tokens(
    texts: Sequence[GenerationState],
    logits: torch.Tensor,
    tokenizer: Tokenizer,
    config: GenerationConfig,
) -> None:
    """Append a token to every text, sampled from ``logits`` (B, V)."""
    log_probabilities = log_softmax(logits.double().cpu().numpy())
    allowed = mask_special_logits(tokenizer, logits, tokenizer.special_tokens.end)
    uniforms = np.array(
        [sampling_uniform(config.seed, t.prompt_ids, t.sample, len(t.new_token_ids)) for t in texts]
    )
    token_ids = config.sample(allowed, [text.token_ids for text in texts], uniforms)
    for row, (text, token_id) in enumerate(zip(texts, token_ids.tolist(), strict=True)):
        text.token_ids.append(token_id)
        text.log_probabilities.append(float(log_probabilities[row, token_id]))


def update_text(text: GenerationState, tokenizer: Tokenizer, config: GenerationConfig) -> None:
    """Decode the new tokens, truncated at the first stop text."""
    text.text = decode_continuation(
        tokenizer, text.token_ids[: text.prompt_length], text.new_token_ids
    )
    stops = [text.text.find(stop) for stop in config.stop if stop in text.text]
    if stops:
        text.text, text.finish_reason = text.text[: min(stops)], "stop"


def decode_continuation(
    tokenizer: Tokenizer, prompt_ids: Sequence[int], new_ids: Sequence[int]
) -> str:
    """Return the text of new tokens after a prompt, including the space between them, if any."""
    before, whole = tokenizer.decode(list(prompt_ids)), tokenizer.decode([*prompt_ids, *new_ids])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(list(new_ids))
