"""Language modelling heads: from hidden states to the vocabulary."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.embedding_lookup import empty_embedding
from bertwright.modules.embeddings.embeddings import Embeddings
from bertwright.modules.feed_forward import ACTIVATIONS, Activation
from bertwright.modules.linear_cross_entropy import linear_cross_entropy
from bertwright.modules.max_logits import max_logits
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole


class LMHeadConfig(Config):
    """An LM head.

    - ``transform``: add a dense layer, an activation and a norm before the output table (BERT)
    - ``norm``: the norm of the transform; None for the encoder's
    - ``bias``: add a bias for each token
    - ``scaled``: divide the hidden states by the square root of the width, for a tied table of
      large vectors (Raffel et al. 2020)
    - ``z_loss``: weight of the squared log Z, added to every training loss of this head (PaLM:
      1e-4)
    - ``smoothing``: label smoothing in training (Vaswani et al. 2017, section 5.4: 0.1)
    """

    transform: bool = True
    transform_bias: bool = True
    activation: Activation = "gelu"
    norm: NormConfig | None = None
    bias: bool = True
    scaled: bool = False
    z_loss: float = Field(default=0.0, ge=0.0)
    smoothing: float = Field(default=0.0, ge=0.0, lt=1.0)

    @property
    def is_tied(self) -> bool:
        """Return whether the head uses the embedding tables, alone or with its own."""
        return False

    @property
    def is_stochastic(self) -> bool:
        """Return whether the training loss is random."""
        return False

    def width(self, encoder: EncoderConfig) -> int:
        """Return the input width of the output table."""
        return encoder.token_embedding_width if self.transform else encoder.direction_width

    def untied_width(self, encoder: EncoderConfig) -> int:
        """Return the width of the head's own table; 0 if it has none."""
        return 0 if self.is_tied else self.width(encoder)

    def flops(self, encoder: EncoderConfig, vocab_size: int) -> float:
        """Return the FLOPs per target."""
        width = self.width(encoder)
        transform = 2 * encoder.direction_width * width if self.transform else 0
        return transform + 2 * width * vocab_size

    def build(self, encoder: EncoderConfig, vocab_size: int) -> "LMHead":
        """Build the module for an encoder and a vocabulary."""
        raise TypeError(f"{type(self).__name__} is an axis, not an LM head")


class TiedHeadConfig(LMHeadConfig):
    """Output weights tied to the token embedding (Press and Wolf 2017)."""

    kind: Literal["tied"] = "tied"

    @property
    def is_tied(self) -> bool:
        return True

    def build(self, encoder: EncoderConfig, vocab_size: int) -> "LMHead":
        return LMHead(self, encoder, vocab_size, table=None)


class UntiedHeadConfig(LMHeadConfig):
    """A separate output table."""

    kind: Literal["untied"] = "untied"

    def build(self, encoder: EncoderConfig, vocab_size: int) -> "LMHead":
        table = empty_embedding(vocab_size, self.untied_width(encoder))
        return LMHead(self, encoder, vocab_size, table)


class ExtendedHeadConfig(LMHeadConfig):
    """The narrow embedding table extended to the encoder's width with separate columns.

    Source: Sun et al. 2020.
    """

    kind: Literal["extended"] = "extended"

    @property
    def is_tied(self) -> bool:
        return True

    def width(self, encoder: EncoderConfig) -> int:
        return encoder.direction_width

    def untied_width(self, encoder: EncoderConfig) -> int:
        return encoder.direction_width - encoder.token_embedding_width

    def build(self, encoder: EncoderConfig, vocab_size: int) -> "LMHead":
        width = self.untied_width(encoder)
        if width < 1:
            raise UserError(
                "output.kind=extended needs token embeddings narrower than the encoder: "
                "set a smaller encoder.embeddings.width, or output.kind=tied"
            )
        return ExtendedLMHead(self, encoder, vocab_size, empty_embedding(vocab_size, width))


class LMHeadTransform(nn.Module):
    """A dense layer, an activation and a norm, from (M, D) to (M, E)."""

    def __init__(self, config: LMHeadConfig, encoder: EncoderConfig) -> None:
        super().__init__()
        width = config.width(encoder)
        self.activation = config.activation
        self.dense = nn.Linear(encoder.direction_width, width, config.transform_bias)
        self.norm = (config.norm or encoder.norm).build(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(ACTIVATIONS[self.activation](self.dense(x)))


class LMHead(nn.Module):
    """A head from hidden states to logits or to a loss; a tied table is passed with every call."""

    parameter_roles = {"bias": ParameterRole("bias")}  # noqa: RUF012

    def __init__(
        self,
        config: LMHeadConfig,
        encoder: EncoderConfig,
        vocab_size: int,
        table: nn.Embedding | None,
    ) -> None:
        super().__init__()
        self.transform = LMHeadTransform(config, encoder) if config.transform else nn.Identity()
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.bias else None
        self.table = table
        self.scale = config.width(encoder) ** -0.5 if config.scaled else 1.0
        self.z_loss, self.smoothing = config.z_loss, config.smoothing
        self.num_embeddings = vocab_size
        self.unused_token_mask: Tensor | None = None
        self._is_compiled = False

    def tie_weights(self, embeddings: Embeddings) -> None:
        """Store references to shared tables that are not passed with every call, if any."""

    def restrict_to_tokens(self, token_ids: Tensor) -> None:
        """Predict only ``token_ids`` (N,); other rows of the table have no token."""
        without_token = torch.ones(self.num_embeddings, dtype=torch.bool)
        without_token[token_ids[token_ids < self.num_embeddings]] = False
        self.unused_token_mask = without_token if without_token.any() else None

    def logits(self, hidden_states: Tensor, embedding_table: Tensor) -> Tensor:
        """Return logits (M, V) of hidden states (M, D); -inf for rows without a token."""
        logits = self.full_logits(hidden_states, embedding_table)
        if self.unused_token_mask is None:
            return logits
        return logits.masked_fill(self.unused_token_mask.to(logits.device), -torch.inf)

    def full_logits(self, hidden_states: Tensor, embedding_table: Tensor) -> Tensor:
        """Return logits (M, V) of hidden states (M, D), including rows without a token."""
        return nn.functional.linear(
            self.transformed_states(hidden_states), self._output_table(embedding_table), self.bias
        )

    def max_logits(self, hidden_states: Tensor, embedding_table: Tensor, is_read: Tensor) -> Tensor:
        """Return the largest logit (B, V) of each token over the positions of a text, float32.

        hidden_states: (B, L, D); is_read: (B, L) bool. Rows without a token have -inf.
        """
        states, table = self.transformed_states(hidden_states), self._output_table(embedding_table)
        logits = max_logits(states, table, is_read).float()
        logits = logits if self.bias is None else logits + self.bias
        if self.unused_token_mask is None:
            return logits
        return logits.masked_fill(self.unused_token_mask.to(logits.device), -torch.inf)

    def loss(
        self,
        hidden_states: Tensor,
        embedding_table: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        dropout_rng: DropoutRng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of losses and number correct at hidden states (M, D).

        Without gradients, rows of the table without a token are excluded. ``dropout_rng`` is for
        heads with a random training loss.
        """
        hidden, table, bias = (
            self.transformed_states(hidden_states),
            self._output_table(embedding_table),
            self.bias,
        )
        if self.unused_token_mask is not None and not torch.is_grad_enabled():
            zeros = table.new_zeros(len(table)) if bias is None else bias
            bias = zeros.masked_fill(self.unused_token_mask.to(zeros.device), -torch.inf)
        settings = self.z_loss, self.smoothing, self._is_compiled
        return linear_cross_entropy(hidden, table, bias, labels, weights, *settings)

    def compile_parts(self) -> None:
        """Compile the transform and the pointwise part of the loss."""
        self.transform.compile(dynamic=False)
        self._is_compiled = True

    def weights_and_biases(
        self, token_ids: Tensor, embedding_table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the output weights (N, W) and biases (N,) of tokens (N,)."""
        bias = (
            embedding_table.new_zeros(len(token_ids)) if self.bias is None else self.bias[token_ids]
        )
        return self._output_table(embedding_table)[token_ids], bias

    def transformed_states(self, hidden_states: Tensor) -> Tensor:
        """Return the transformed states (..., W), whose products with token weights are logits."""
        hidden: Tensor = self.transform(hidden_states)
        return hidden if self.scale == 1.0 else hidden * self.scale

    def _output_table(self, embedding_table: Tensor) -> Tensor:
        return embedding_table if self.table is None else self.table.weight


class ExtendedLMHead(LMHead):
    """An LM head whose table is the embedding (V, E) next to its own table (V, D - E)."""

    def _output_table(self, embedding_table: Tensor) -> Tensor:
        assert self.table is not None
        return torch.cat((embedding_table, self.table.weight), dim=1)
