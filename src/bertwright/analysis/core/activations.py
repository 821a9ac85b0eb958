"""One pass over texts for several analyses.

Activations are measured batch by batch and then discarded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText, TokenCategory, token_batches
from bertwright.encoder.encoder import Encoder
from bertwright.modules.token_tensors import TokenInfo

MAX_TOKENS_PER_BATCH = 1024
"""Maximum number of tokens of a batch, padding included. It bounds the memory of attention weights,
which take the number of tokens times the sequence length for every layer and head."""


@dataclass(frozen=True)
class ActivationBatch:
    """A batch of texts with their indices and recorded activations, padded to L positions."""

    texts: Sequence[AnalysedText]
    text_indices: Sequence[int]
    values: Mapping[str, Tensor]
    token_mask: Tensor
    """True at tokens, False at padding, (B, L) bool."""
    uniform_attention: Callable[[int], Tensor]
    """Uniform attention over allowed keys, by layer: (B, 1 or H, L, L)."""

    @property
    def lengths(self) -> Tensor:
        """Return the number of tokens of each text, (B,) float32."""
        return self.token_mask.sum(1).float()

    def value(self, layer: int, name: str) -> Tensor:
        """Return an activation of a layer by name."""
        return self.values[f"blocks.{layer}.{name}"]

    def attention(self, layer: int) -> Tensor:
        """Return the attention weights of a layer, (B, H, L, L), 0 for padding queries."""
        weights = self.value(layer, "attention.weights")
        return weights if self.token_mask.all() else weights * self.token_mask[:, None, :, None]

    def category_mask(self, category: TokenCategory) -> Tensor:
        """Return the mask of the positions of a category, (B, L) bool."""
        mask = torch.zeros(self.token_mask.shape, dtype=torch.bool)
        for index, text in enumerate(self.texts):
            mask[index, : len(text)] = torch.from_numpy(text.category_masks[category])
        return mask.to(self.token_mask.device)

    def category_columns(self, *categories: TokenCategory) -> Tensor:
        """Return the masks of several categories, (B, L, K) bool."""
        return torch.stack([self.category_mask(category) for category in categories], -1)

    def word_to_token_attention(self, index: int, weights: Tensor) -> Tensor:
        """Return attention from words to tokens, (H, W, T), from weights (H, L, L).

        It is the mean over the tokens of the attending word (Clark et al. 2019, section 4.1).
        """
        member = self._word_membership(index, weights)
        size = len(member)
        return (member / member.sum(0)).T @ weights[:, :size, :size]

    def word_attention(self, index: int, weights: Tensor) -> Tensor:
        """Return attention between words, (H, W, W): summed over the tokens of the key word."""
        return self.word_to_token_attention(index, weights) @ self._word_membership(index, weights)

    def _word_membership(self, index: int, reference: Tensor) -> Tensor:
        """Return which tokens belong to which words, (T, W)."""
        text = self.texts[index]
        word_ids = torch.from_numpy(text.word_ids)
        member = torch.nn.functional.one_hot(word_ids.clamp(min=0), len(text.words))
        return (member * (word_ids >= 0)[:, None]).to(reference)

    def segment_ids(self) -> Tensor:
        """Return the segment of each position, (B, L) int64, -1 for padding."""
        segments = torch.full(self.token_mask.shape, -1)
        for index, text in enumerate(self.texts):
            segments[index, : len(text)] = torch.tensor(text.segment_ids)
        return segments.to(self.token_mask.device)


Measurements = Mapping[str, Iterable[Any]]
"""Measured values by name, one for every text."""

Measured = Mapping[str, list[Any]]
"""The measured values of all texts, by name."""


def collect_measurements(
    model: AnalysedModel,
    texts: Sequence[AnalysedText],
    taps: Iterable[str],
    measures: Sequence[Callable[[ActivationBatch], Measurements]],
) -> list[Measured]:
    """Run the model over the texts once; return the measurements of each function for all texts."""
    collected: list[dict[str, list[Any]]] = [{} for _ in measures]
    for batch in activation_batches(model, texts, sorted(set(taps))):
        for by_name, measure in zip(collected, measures, strict=True):
            for name, values in measure(batch).items():
                by_text = by_name.setdefault(name, [None] * len(texts))
                for index, value in zip(batch.text_indices, values, strict=True):
                    by_text[index] = value
    return [*collected]


@torch.no_grad()
def activation_batches(
    model: AnalysedModel, texts: Sequence[AnalysedText], taps: Sequence[str]
) -> Iterator[ActivationBatch]:
    """Yield the activations of the texts batch by batch, longest texts first."""
    for batch in token_batches(model, texts, MAX_TOKENS_PER_BATCH):
        document_ids = batch.token_info.document_ids
        token_mask = (batch.token_ids >= 0) if document_ids is None else document_ids >= 0
        with model.encoder.record(*taps) as values:
            model.encoder(batch.token_ids, batch.token_info)
        indices: list[int] = batch.indices.tolist()
        uniform = _uniform_attention(model.encoder, batch.token_info, token_mask)
        yield ActivationBatch([texts[n] for n in indices], indices, values, token_mask, uniform)


def _uniform_attention(
    encoder: Encoder, token_info: TokenInfo, token_mask: Tensor
) -> Callable[[int], Tensor]:
    @cache
    def uniform(layer: int) -> Tensor:
        allowed = encoder.allowed_pairs(layer, token_info) & token_mask[:, None, :, None]
        weights = allowed.float()
        return weights / weights.sum(-1, keepdim=True).clamp(min=1)

    return uniform
