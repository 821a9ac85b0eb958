"""Heads that represent texts for retrieval: weights of tokens, or a vector for every token.

They read all hidden states of a text. The *output positions* of a sequence are the positions whose
vectors a text keeps, or whose tokens a query consists of.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.modules.parameter_roles import ParameterRole
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.tasks.heads.head import HeadConfig, TaskHead, TaskHeadContext, Trunk
from bertwright.tasks.heads.pooling import HeadPooling


@dataclass(frozen=True)
class TextInputs:
    """What a head of text vectors reads beside the hidden states of B texts.

    Attributes:
        token_ids: (B, L) int64.
        is_real: (B, L) bool, False at padding.
        positions: (M,) flat output positions, int64; None if no text has any.
        lm_head: the language-model head, for heads that use it.
        embedding_table: (V, E) token embeddings.
    """

    token_ids: Tensor
    is_real: Tensor
    positions: Tensor | None
    lm_head: LMHead | None
    embedding_table: Tensor

    def is_output_position(self) -> Tensor:
        """Return whether each position is an output position, (B, L) bool."""
        is_output = torch.zeros_like(self.is_real).flatten()
        if self.positions is not None:
            is_output[self.positions] = True
        return is_output.view_as(self.is_real)


class TextVectorHead(TaskHead, ABC):
    """A head whose outputs represent whole texts."""

    @abstractmethod
    def represent(self, hidden_states: Tensor, inputs: TextInputs) -> Tensor:
        """Map hidden states (B, L, W) of texts to their representations, float32."""


MIN_LOG_WEIGHT = -128.0
"""Logarithm of a weight of 0: its exponential is 0 in float32."""


def log_token_weights(weights: Tensor) -> Tensor:
    """Return the logarithms of weights (V,), none below 0."""
    return weights.log().clamp(min=MIN_LOG_WEIGHT)


class StaticTokenWeights(nn.Module):
    """A weight for every token, 0 or more, which does not depend on the text.

    The logarithm of each weight is trained, so that weights stay positive and a step changes all of
    them by similar factors.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"log_weights": ParameterRole("bias")}

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.log_weights = nn.Parameter(torch.zeros(vocab_size))

    @torch.no_grad()
    def set_weights(self, weights: Tensor) -> None:
        """Set the weights (V,), none below 0."""
        self.log_weights.copy_(log_token_weights(weights))

    @property
    def weights(self) -> Tensor:
        """Return the weights (V,) float32."""
        return self.log_weights.float().exp()

    def forward(self, token_ids: Tensor, is_read: Tensor) -> Tensor:
        """Return the weight of each token that occurs at the positions read, and 0 else: (B, V).

        token_ids, is_read: (B, L).
        """
        occurs = self.log_weights.new_zeros((len(token_ids), len(self.log_weights)))
        occurs.scatter_reduce_(1, token_ids, is_read.to(occurs.dtype), "amax")
        return occurs.float() * self.weights


class TokenWeightHead(TextVectorHead):
    """The largest weight log(1 + relu(logit)) of every token over the positions of a text.

    With static query weights, texts with output positions are queries: they have the weights of
    their tokens at these positions.
    """

    config: "TokenWeightHeadConfig"

    def represent(self, hidden_states: Tensor, inputs: TextInputs) -> Tensor:
        assert inputs.lm_head is not None, "the weights of tokens come from an LM head"
        maxima = inputs.lm_head.max_logits(hidden_states, inputs.embedding_table, inputs.is_real)
        weights = self.saturate(maxima)
        if not isinstance(self.classifier, StaticTokenWeights) or inputs.positions is None:
            return weights
        is_output = inputs.is_output_position()
        query_weights = self.classifier(inputs.token_ids, is_output)
        return torch.where(is_output.any(1, keepdim=True), query_weights, weights)

    def saturate(self, logits: Tensor) -> Tensor:
        """Return the weights of logits: log(1 + relu(logit)), with the logarithm once or twice."""
        weights = torch.log1p(torch.relu(logits))
        return torch.log1p(weights) if self.config.double_log else weights


class TokenWeightHeadConfig(HeadConfig):
    """Weights of all tokens of the vocabulary, by the pre-trained language-model head (SPLADE).

    The weight of a token is the maximum of log(1 + relu(logit)) over the positions of a text
    (Formal et al. 2021, SPLADE v2, equation 2). With ``static_queries`` a table has the weights of
    the tokens of queries. ``double_log`` takes the logarithm twice (Shen et al. 2025).
    """

    kind: Literal["token-weights"] = "token-weights"
    pooling: HeadPooling = "all"
    static_queries: bool = False
    double_log: bool = False
    uses_lm_head: ClassVar[bool] = True

    def build(self, context: TaskHeadContext) -> TaskHead:
        trunk, width, rates = self.build_trunk(context, context.recipe.encoder.width)
        head = TokenWeightHead(self, trunk, nn.Identity(), nn.Identity(), width, context, rates)
        if self.static_queries:
            head.classifier = StaticTokenWeights(context.vocab_size)
        return head

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        return nn.Identity(), width, (0.0, 0.0)


class TokenVectorHead(TextVectorHead):
    """A vector of length 1 for every output position, and zeros elsewhere: (B, L, K)."""

    def represent(self, hidden_states: Tensor, inputs: TextInputs) -> Tensor:
        vectors = F.normalize(self.classifier(hidden_states).float(), dim=-1)
        return vectors.masked_fill(~inputs.is_output_position()[..., None], 0.0)


class TokenVectorHeadConfig(HeadConfig):
    """A linear map of every hidden state to a short vector of length 1, without a bias (ColBERT).

    Source: Khattab and Zaharia 2020, section 3.2.
    """

    kind: Literal["token-vectors"] = "token-vectors"
    pooling: HeadPooling = "all"

    def build(self, context: TaskHeadContext) -> TaskHead:
        trunk, width, rates = self.build_trunk(context, self._input_width(context))
        head = TokenVectorHead(self, trunk, nn.Identity(), nn.Identity(), width, context, rates)
        head.classifier = nn.Linear(width, context.num_outputs, bias=False)
        return head

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        return nn.Identity(), width, (0.0, 0.0)
