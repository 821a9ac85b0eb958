"""Adaptive softmax: rare tokens are predicted by cluster (Grave et al. 2017)."""

from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from bertwright.encoder.config import EncoderConfig
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.embedding_lookup import empty_embedding
from bertwright.modules.embeddings.adaptive import (
    AdaptiveEmbedding,
    AdaptiveEmbeddingsConfig,
    check_cutoffs,
    cluster_ranges,
    cluster_widths,
)
from bertwright.modules.embeddings.embeddings import Embeddings
from bertwright.modules.linear_cross_entropy import linear_cross_entropy
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.objectives.heads.lm_head import LMHead, LMHeadConfig


class AdaptiveSoftmaxConfig(LMHeadConfig):
    """An adaptive softmax: predict a frequent token, or a cluster and then one of its tokens.

    Token ids must be sorted by frequency; those below the first cutoff are the frequent ones. With
    ``narrower`` None, the head shares the embedding tables; if these are adaptive as well, it also
    shares their projections except the first (Dai et al. 2019). With a number, every cluster has
    its own table, narrower by that factor than the one before. Cutoffs beyond the vocabulary are
    ignored.
    """

    kind: Literal["adaptive"] = "adaptive"
    transform: bool = False
    cutoffs: tuple[int, ...] = Field(max_length=64)
    narrower: int | None = Field(default=None, ge=1, le=65_536)

    @field_validator("cutoffs")
    @classmethod
    def _check_cutoffs(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return check_cutoffs(cutoffs)

    @field_validator("smoothing")
    @classmethod
    def _refuse_smoothing(cls, smoothing: float) -> float:
        if smoothing:
            raise ValueError(
                "is not possible with clusters, which are predicted in two steps: set 0"
            )
        return smoothing

    @property
    def is_tied(self) -> bool:
        return self.narrower is None

    def flops(self, encoder: EncoderConfig, vocab_size: int) -> float:
        """Return the FLOPs per target, weighting clusters by their frequency under Zipf's law."""
        width = self.width(encoder)
        head, *tails = cluster_ranges(self.cutoffs, vocab_size)
        harmonic = torch.arange(1, vocab_size + 1, dtype=torch.float64).reciprocal()
        fractions = [float(harmonic[t.start : t.stop].sum() / harmonic.sum()) for t in tails]
        tables = encoder.embeddings
        shared = (
            tables.narrower
            if self.is_tied and isinstance(tables, AdaptiveEmbeddingsConfig)
            else None
        )
        narrower = self.narrower or shared
        projected = 0 if narrower is None else width
        total = 2.0 * width * (len(head) + len(tails) + (0 if shared is None else width))
        inner = cluster_widths(width, narrower or 1, len(tails) + 1)[1:]
        for fraction, tail, narrow in zip(fractions, tails, inner, strict=True):
            total += fraction * 2 * narrow * (len(tail) + projected)
        return total + (2 * encoder.direction_width * width if self.transform else 0)

    def build(self, encoder: EncoderConfig, vocab_size: int) -> "AdaptiveLMHead":
        return AdaptiveLMHead(self, encoder, vocab_size)


class AdaptiveLMHead(LMHead):
    """An LM head with two steps: frequent token or cluster, then the token of a cluster.

    ``tables`` holds its own or shared tables; if empty, slices of ``embedding_table`` are used.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "bias": ParameterRole("bias"),
        "cluster_bias": ParameterRole("bias"),
        "cluster_weight": ParameterRole("matrix"),
    }

    def __init__(
        self, config: AdaptiveSoftmaxConfig, encoder: EncoderConfig, vocab_size: int
    ) -> None:
        super().__init__(config, encoder, vocab_size, None)
        width = config.width(encoder)
        self.clusters = cluster_ranges(config.cutoffs, vocab_size)
        number = len(self.clusters) - 1
        self.cluster_weight = nn.Parameter(torch.empty(number, width))
        self.cluster_bias = nn.Parameter(torch.zeros(number)) if config.bias else None
        self.tables, self.projections = nn.ModuleList(), nn.ModuleList()
        if config.narrower is not None:
            inner = cluster_widths(width, config.narrower, number + 1)
            for cluster, narrow in zip(self.clusters, inner, strict=True):
                self.tables.append(empty_embedding(len(cluster), narrow))
                projection = nn.Linear(narrow, width, bias=False) if len(self.projections) else None
                self.projections.append(projection or nn.Identity())

    def tie_weights(self, embeddings: Embeddings) -> None:
        shared = embeddings.tokens
        if len(self.tables) or not isinstance(shared, AdaptiveEmbedding):
            return
        width = self.cluster_weight.shape[1]
        self.tables = shared.tables
        first = nn.Linear(width, width, bias=False)
        self.projections = nn.ModuleList([first, *list(shared.projections)[1:]])

    def full_logits(self, hidden_states: Tensor, embedding_table: Tensor) -> Tensor:
        """Return log-probabilities (M, V) of hidden states (M, D)."""
        hidden = self.transformed_states(hidden_states)
        head = F.log_softmax(F.linear(*self._head_operands(hidden, embedding_table)), dim=1)
        num_frequent = len(self.clusters[0])
        log_probabilities = [head[:, :num_frequent]]
        for number in range(1, len(self.clusters)):
            tail = F.log_softmax(
                F.linear(*self._cluster_operands(number, hidden, embedding_table)), dim=1
            )
            log_probabilities.append(head[:, num_frequent + number - 1, None] + tail)
        return torch.cat(log_probabilities, dim=1)

    def loss(
        self,
        hidden_states: Tensor,
        embedding_table: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        dropout_rng: DropoutRng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of losses and the number correct at hidden states (M, D).

        Both are weighted. A prediction is correct if both of its steps are.
        """
        hidden = self.transformed_states(hidden_states)
        num_frequent = len(self.clusters[0])
        starts = torch.tensor([c.start for c in self.clusters[1:]], device=labels.device)
        cluster = torch.bucketize(labels, starts, right=True)
        step = torch.where(cluster == 0, labels, num_frequent + cluster - 1)
        head_input, head_table, bias = self._head_operands(hidden, embedding_table)
        loss, num_correct = linear_cross_entropy(
            head_input, head_table, bias, step, weights, self.z_loss
        )
        for number in range(1, len(self.clusters)):
            members = (cluster == number).nonzero().squeeze(1)
            if not len(members):
                continue
            tail = self._cluster_operands(number, hidden[members], embedding_table)
            cluster_labels = labels[members] - self.clusters[number].start
            cluster_weights = None if weights is None else weights[members]
            cluster_loss, _ = linear_cross_entropy(
                *tail, cluster_labels, cluster_weights, self.z_loss
            )
            loss = loss + cluster_loss
            with torch.no_grad():
                is_cluster_correct = (
                    F.linear(head_input[members], head_table, bias).argmax(1) == step[members]
                )
                is_token_wrong = is_cluster_correct & (F.linear(*tail).argmax(1) != cluster_labels)
                num_correct = (
                    num_correct
                    - (
                        is_token_wrong
                        if cluster_weights is None
                        else is_token_wrong * cluster_weights
                    ).sum()
                )
        return loss, num_correct

    def compile_parts(self) -> None:
        """Compile only the transform, as the number of targets per cluster changes every step."""
        self.transform.compile(dynamic=False)

    def _head_operands(
        self, transformed: Tensor, embedding_table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        head_input, table, bias = self._cluster_operands(0, transformed, embedding_table)
        table = torch.cat((table, self.cluster_weight))
        if bias is not None and self.cluster_bias is not None:
            bias = torch.cat((bias, self.cluster_bias))
        return head_input, table, bias

    def _cluster_operands(
        self, cluster: int, transformed: Tensor, embedding_table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the input of a cluster's projection, its table and its biases."""
        tokens = slice(self.clusters[cluster].start, self.clusters[cluster].stop)
        bias = None if self.bias is None else self.bias[tokens]
        if not len(self.tables):
            return transformed, embedding_table[tokens], bias
        projection = self.projections[cluster]
        if isinstance(projection, nn.Linear):
            transformed = F.linear(transformed, projection.weight.t())
        return transformed, cast(nn.Embedding, self.tables[cluster]).weight, bias
