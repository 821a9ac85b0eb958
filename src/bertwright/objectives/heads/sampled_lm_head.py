"""Sampled softmax: training compares a token with a sample of the vocabulary (Jean et al. 2015).

Negative tokens k are drawn from a log-uniform distribution p over the ids, which are sorted by
frequency. The logit of every token is lowered by log Q, where Q(k) = 1 - (1 - p(k))^n is the
probability that k is among n draws. So the loss approaches that of the full softmax as the sample
approaches the vocabulary. Evaluation uses the full softmax.
"""

import math
from functools import cache
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from bertwright.encoder.config import EncoderConfig
from bertwright.modules.dropout_rng import DropoutRng, uniform_for_step
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.objectives.heads.lm_head import LMHead, LMHeadConfig

NEGATIVES_STREAM = 71
"""Stream of the draws."""


class SampledSoftmaxConfig(LMHeadConfig):
    """A separate output table whose training loss samples negative tokens.

    ``negatives`` is the expected number of different tokens in the sample, which all targets of a
    step share (Peters et al. 2018: 8192). Token ids must be sorted by frequency.
    """

    kind: Literal["sampled"] = "sampled"
    negatives: int = Field(default=8192, ge=1, le=1 << 24)

    @model_validator(mode="after")
    def _refuse_other_losses(self) -> Self:
        if self.z_loss or self.smoothing:
            raise ValueError("z_loss and smoothing need the whole softmax: set them to 0")
        return self

    @property
    def is_stochastic(self) -> bool:
        return True

    def build(self, encoder: EncoderConfig, vocab_size: int) -> LMHead:
        table = empty_embedding(vocab_size, self.untied_width(encoder))
        return SampledLMHead(self, encoder, vocab_size, table)


class SampledLMHead(LMHead):
    """An LM head with a sampled softmax in training."""

    def __init__(
        self,
        config: SampledSoftmaxConfig,
        encoder: EncoderConfig,
        vocab_size: int,
        table: nn.Embedding,
    ) -> None:
        super().__init__(config, encoder, vocab_size, table)
        self.num_negatives = config.negatives

    def loss(
        self,
        hidden_states: Tensor,
        embedding_table: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        dropout_rng: DropoutRng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of :class:`LMHead`; with ``dropout_rng`` that of a sampled softmax.

        A prediction is then correct if no token of the sample has a larger logit.
        """
        samples_all = self.num_negatives >= self.num_embeddings
        if dropout_rng is None or samples_all or not len(labels):
            return super().loss(hidden_states, embedding_table, labels, weights)
        num_draws = draws_for(self.num_negatives, self.num_embeddings)
        negatives, is_repeated = draw_negatives(num_draws, self.num_embeddings, dropout_rng)
        hidden = self.transformed_states(hidden_states)
        table = self._output_table(embedding_table)
        true_logits = (hidden * embedding_lookup(table, labels)).sum(-1).float()
        sampled_logits = F.linear(hidden, embedding_lookup(table, negatives)).float()
        if self.bias is not None:
            true_logits = true_logits + self.bias[labels]
            sampled_logits = sampled_logits + self.bias[negatives]
        true_logits = true_logits - self._log_inclusion(labels, num_draws)
        sampled_logits = sampled_logits - self._log_inclusion(negatives, num_draws)
        is_hidden = is_repeated | (negatives == labels[:, None])
        sampled_logits = sampled_logits.masked_fill(is_hidden, -torch.inf)
        logits = torch.cat((true_logits[:, None], sampled_logits), dim=1)
        loss = logits.logsumexp(1) - true_logits
        is_correct = (logits.argmax(1) == 0).float()
        if weights is not None:
            loss, is_correct = loss * weights, is_correct * weights
        return loss.sum(), is_correct.sum()

    def _log_inclusion(self, token_ids: Tensor, num_draws: int) -> Tensor:
        """Return the log-probability of each token (...) to be among the draws, float32."""
        log_missed = torch.log1p(-log_uniform_probabilities(token_ids, self.num_embeddings))
        return torch.log(-torch.expm1(num_draws * log_missed)).float()


def log_uniform_probabilities(token_ids: Tensor, vocab_size: int) -> Tensor:
    """Return p(k) = log((k + 2) / (k + 1)) / log(V + 1) of token ids k (...), float64."""
    k = token_ids.double()
    return torch.log1p(1 / (k + 1)) / math.log(vocab_size + 1)


def draw_negatives(
    num_draws: int, vocab_size: int, dropout_rng: DropoutRng
) -> tuple[Tensor, Tensor]:
    """Return sorted log-uniform draws (n,) int64, and which repeat the draw before them (n,)."""
    indices = torch.arange(num_draws, device=dropout_rng.seed.device)
    uniforms = uniform_for_step(dropout_rng, indices, NEGATIVES_STREAM).double()
    draws = torch.exp(uniforms * math.log(vocab_size + 1)).long() - 1
    token_ids = draws.clamp(0, vocab_size - 1).sort().values
    return token_ids, F.pad(token_ids[1:] == token_ids[:-1], (1, 0))


@cache
def draws_for(num_negatives: int, vocab_size: int) -> int:
    """Return how many draws have this expected number of different tokens."""
    with torch.device("cpu"):
        log_missed = torch.log1p(-log_uniform_probabilities(torch.arange(vocab_size), vocab_size))
    low, high = num_negatives, num_negatives
    while float(-torch.expm1(high * log_missed).sum()) < num_negatives:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        enough = float(-torch.expm1(middle * log_missed).sum()) >= num_negatives
        low, high = (low, middle) if enough else (middle, high)
    return high
