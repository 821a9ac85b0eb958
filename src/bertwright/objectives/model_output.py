"""What objectives receive from a model, and the losses that they return."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bertwright.encoder.decoder import Decoder, RecurrentDecoder
from bertwright.modules.attention.mask import Visibility
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.sentence_pooling import Pooling
from bertwright.modules.token_tensors import TokenInfo
from bertwright.modules.vector_projection import VectorProjection
from bertwright.objectives.heads.lm_head import LMHead


@dataclass(frozen=True)
class DeviceTargets:
    """Targets on the device; see :class:`bertwright.batches.targets.Targets`.

    ``positions``, ``labels``: (M,) int64; ``weights``: (M,) float32, or None if all are 1;
    ``total_weight`` is their sum; ``extra_inputs``: (M,) int64 each.
    """

    positions: Tensor
    labels: Tensor
    weights: Tensor | None
    total_weight: float
    extra_inputs: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])

    def score(self, losses: Tensor, is_correct: Tensor) -> "Loss":
        """Return the weighted loss, given losses (M,) and correct predictions (M,)."""
        if self.weights is not None:
            losses, is_correct = losses * self.weights, is_correct * self.weights
        return Loss(losses.sum(), self.total_weight, is_correct.float().sum())


@dataclass(frozen=True)
class Loss:
    """A loss before averaging.

    - ``sum``: 0-d float32, differentiable
    - ``count``: total weight of the targets
    - ``num_correct``: 0-d, weighted number of correct predictions
    - ``binary_predictions``: logits (M,) and labels (M,) of a binary classification
    """

    sum: Tensor
    count: float
    num_correct: Tensor
    binary_predictions: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class GeneratorInput:
    """The encoder's input before the generator replaces tokens (B, L).

    ``first_position`` is the index of the first token in the global batch.
    """

    token_ids: Tensor
    token_info: TokenInfo
    visibility: Visibility
    dropout_rng: DropoutRng | None
    first_position: int


@dataclass(frozen=True)
class ModelOutput:
    """The outputs of a model for one batch.

    Attributes:
        token_ids: (B, L), the encoder's input.
        hidden_states: (B, L, D) of the encoder, or (M, D) at the output positions.
        embedding_table: (V, E).
        lm_head: the LM head; None if the model has none.
        aux_outputs: further outputs of the encoder by name.
        token_info: metadata of the tokens.
        decoder: the decoder; None if the model has none.
        dropout_rng: random numbers for dropout after the encoder.
        output_positions: (M,) flat positions of the hidden states; None for all positions.
        pooling: how the vector of a text is pooled from its hidden states.
        vector_projection: maps pooled vectors; None if the model has none.
    """

    token_ids: Tensor
    hidden_states: Tensor
    embedding_table: Tensor
    lm_head: LMHead | None
    aux_outputs: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    token_info: TokenInfo | None = None
    decoder: Decoder | RecurrentDecoder | None = None
    dropout_rng: DropoutRng | None = None
    output_positions: Tensor | None = None
    pooling: Pooling = "mean"
    vector_projection: VectorProjection | None = None

    def states_at(self, positions: Tensor) -> Tensor:
        """Return the hidden states (M, D) at flat positions (M,)."""
        if self.output_positions is None:
            return self.hidden_states.flatten(0, 1).index_select(0, positions)
        index = positions.new_empty(self.token_ids.numel())
        index[self.output_positions] = torch.arange(
            len(self.output_positions), device=positions.device
        )
        return self.hidden_states.index_select(0, index[positions])

    def token_loss(self, hidden_states: Tensor, targets: DeviceTargets) -> Loss:
        """Return the loss for predicting the target tokens from hidden states (M, D)."""
        assert self.lm_head is not None, "an objective that predicts tokens needs an LM head"
        loss, num_correct = self.lm_head.loss(
            hidden_states,
            self.embedding_table,
            targets.labels,
            targets.weights,
            self.dropout_rng,
        )
        return Loss(loss, targets.total_weight, num_correct)

    def token_logits(self, hidden_states: Tensor) -> Tensor:
        """Return the token logits (M, V) of hidden states (M, D)."""
        assert self.lm_head is not None, "an objective that predicts tokens needs an LM head"
        return self.lm_head.logits(hidden_states, self.embedding_table)
