"""Objectives: targets, heads and losses of pre-training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.batches.arrays import BoolArray
from bertwright.batches.formats import InputFormat
from bertwright.batches.masking import SelectedPositions
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.config import Config
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.decoder import Decoder
from bertwright.modules.attention.mask import BidirectionalVisibility, Visibility
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.embeddings.embeddings import Embeddings
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.heads.lm_head import LMHead


@dataclass(frozen=True)
class MaskingContext:
    """The inputs of masking besides the sequences.

    ``rng`` is keyed by the seed and the sequences, so that all randomness is a function of them.
    ``earlier_targets`` are those of the objectives before, by name.
    """

    rng: CounterRng
    vocabulary: Vocabulary
    progress: float = 0.0
    earlier_targets: Mapping[str, Targets] = field(default_factory=dict[str, Targets])


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
        """Return the weighted loss of losses (M,) and correct predictions (M,)."""
        if self.weights is not None:
            losses, is_correct = losses * self.weights, is_correct * self.weights
        return Loss(losses.sum(), self.total_weight, is_correct.float().sum())


@dataclass(frozen=True)
class Loss:
    """A loss before averaging.

    - ``sum``: 0-d float32, differentiable
    - ``count``: total weight of the targets
    - ``num_correct``: 0-d, weighted correct predictions
    - ``binary_predictions``: logits (M,) and labels (M,) of a binary classification
    """

    sum: Tensor
    count: float
    num_correct: Tensor
    binary_predictions: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class HeadContext:
    """The inputs for building a head: the encoder's config, and embeddings that it may share."""

    encoder_config: EncoderConfig
    embeddings: Embeddings
    vocab_size: int


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
        token_ids: (B, L), as the encoder saw them.
        hidden_states: (B, L, D) of the encoder, or (M, D) at the output positions.
        embedding_table: (V, E).
        lm_head: if the model has one.
        aux_outputs: further outputs of the encoder by name.
        token_info: metadata of the tokens.
        decoder: if the model has one.
        dropout_rng: for dropout after the encoder.
        output_positions: (M,) flat positions of the hidden states; None for all positions.
    """

    token_ids: Tensor
    hidden_states: Tensor
    embedding_table: Tensor
    lm_head: LMHead | None
    aux_outputs: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    token_info: TokenInfo | None = None
    decoder: Decoder | None = None
    dropout_rng: DropoutRng | None = None
    output_positions: Tensor | None = None

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
        """Return the loss of predicting the target tokens from hidden states (M, D)."""
        assert self.lm_head is not None, "an objective that predicts tokens needs an LM head"
        loss, num_correct = self.lm_head.loss(
            hidden_states, self.embedding_table, targets.labels, targets.weights
        )
        return Loss(loss, targets.total_weight, num_correct)

    def token_logits(self, hidden_states: Tensor) -> Tensor:
        """Return the token logits (M, V) of hidden states (M, D)."""
        assert self.lm_head is not None, "an objective that predicts tokens needs an LM head"
        return self.lm_head.logits(hidden_states, self.embedding_table)


class Objective(Config):
    """A pre-training objective.

    ``weight`` scales its mean loss where several objectives share a step. Objectives with a
    ``fraction`` alternate, one per step, each in that relative fraction of the steps; those without
    it take part in every step. ``task`` is the task embedding that is added for it, in an encoder
    with ``embeddings.tasks`` (Sun et al. 2019b).
    """

    weight: NumberOrSchedule = ConstantSchedule(value=1.0)
    fraction: float | None = Field(default=None, gt=0.0)
    task: int | None = Field(default=None, ge=0, le=1_024)

    needs_document_context: ClassVar[bool] = False
    """True if its labels depend on parts of the document outside the sequence."""

    predicts_tokens: ClassVar[bool] = False
    """True if it predicts tokens with the model's LM head."""

    uses_embedding_table: ClassVar[bool] = False
    """True if its own head reads the embedding table."""

    is_classification: ClassVar[bool] = True
    """True if it has discrete labels, so that accuracy is defined."""

    uses_decoder: ClassVar[bool] = False
    """True if it predicts with a decoder."""

    masks_input: ClassVar[bool] = False
    """True if the encoder does not see the predicted tokens, or not in their positions.

    The masked fraction of the text is then reported.
    """

    corrupts_input: ClassVar[bool] = False
    """True if it corrupts the encoder's input for other objectives, so it is evaluated alone."""

    is_generator: ClassVar[bool] = False
    """True if its head runs before the encoder and replaces input tokens."""

    @property
    def permutes_input(self) -> bool:
        """True if tokens that are not targets change position."""
        return False

    @property
    def input_format(self) -> InputFormat | None:
        """Input format of its steps, at the usual length; None for the recipe's own."""
        return None

    @property
    def visibility(self) -> Visibility | None:
        """Visibility that it needs, besides the encoder's own; None if any will do."""
        return BidirectionalVisibility()

    def order_conflict(
        self, preceding: "Mapping[str, Objective]", following: "Mapping[str, Objective]"
    ) -> str | None:
        """Return why it cannot stand between these objectives, or None."""
        return None

    def make_targets(
        self, batch: SequenceBatch, context: MaskingContext
    ) -> tuple[SequenceBatch, Targets]:
        """Return the corrupted sequences, and the targets."""
        raise TypeError(f"{type(self).__name__} is an axis, not an objective")

    def make_targets_at(
        self,
        selected: SelectedPositions,
        is_masked: BoolArray,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
    ) -> tuple[SequenceBatch, Targets] | None:
        """Return sequences and targets for given positions; None if it predicts no text tokens.

        No token in ``is_masked`` (B, L), which includes the targets, is visible to the hidden
        states that predict them; a causal model sees those that precede a target.
        """
        return None

    def with_task_ids(self, batch: SequenceBatch) -> SequenceBatch:
        """Return the sequences with its task id."""
        if self.task is None:
            return batch
        task_ids = np.full(batch.token_ids.shape, self.task, np.int32)
        return replace(batch, token_info=replace(batch.token_info, task_ids=task_ids))

    def build_head(self, context: HeadContext) -> nn.Module | None:
        """Build its own head, if it has one."""
        return None

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        """Data or annotations that it needs and not every data set has."""
        return frozenset()

    def num_classes(self, vocab_size: int) -> int:
        """Return the number of classes."""
        return vocab_size

    def targets_per_token(self, length: int) -> float:
        """Return the LM head's targets per input token, for sequences of this length."""
        return 0.0

    def states_per_token(self, length: int, group: Mapping[str, "Objective"]) -> float:
        """Return the hidden states used per input token, for sequences of this length.

        Relevant if :meth:`output_positions` selects them; ``group`` holds all objectives of the
        step.
        """
        return 1.0

    def num_decoder_positions(self, length: int) -> int:
        """Return the number of decoder positions for sequences of this length."""
        return 0

    @property
    def query_stream_fraction(self) -> float:
        """Number of query positions appended to a sequence, as a fraction of its length."""
        return 0.0

    def head_flops(
        self, encoder: EncoderConfig, vocab_size: int, length: int, group: Mapping[str, "Objective"]
    ) -> float:
        """Return the FLOPs of its own token-predicting head per input token.

        ``group`` holds all objectives of the step.
        """
        return 0.0

    def generator_config(self, encoder: EncoderConfig) -> EncoderConfig | None:
        """Return the encoder config of its generator, if it has one.

        Errors: ValueError if there is none for this encoder.
        """
        return None

    def replace_tokens(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: nn.Module | None
    ) -> tuple[Tensor, Loss]:
        """Run the generator; returns the encoder's input ids (B, L), and the loss."""
        raise TypeError(f"{type(self).__name__} has no generator")

    def output_positions(self, targets: DeviceTargets) -> Tensor | None:
        """Return the flat positions (M,) whose hidden states it uses; None for most or all."""
        return None

    def hidden_states(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        """Return the hidden states (M, D) from which tokens are predicted."""
        return output.states_at(targets.positions)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        """Return the loss: here, of predicting tokens."""
        return output.token_loss(self.hidden_states(targets, output), targets)

    def logits(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Tensor | None:
        """Return the logits (M, C); None if it is not a classification.

        A generator's are returned by :meth:`generator_logits`.
        """
        if not self.predicts_tokens:
            return None
        return output.token_logits(self.hidden_states(targets, output))

    def generator_logits(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: nn.Module | None
    ) -> Tensor | None:
        """Return the logits of a generator."""
        return None

    def true_labels(self, labels: Tensor, input_ids: Tensor) -> Tensor:
        """Return the correct classes (M,), given the input ids (M,) at the targets."""
        return labels

    def class_label(self, class_id: int, token_name: Callable[[int], str]) -> str:
        """Return the name of a class; ``token_name`` names tokens."""
        return token_name(class_id) if self.predicts_tokens else str(class_id)

    def target_label(self, label: int, token_name: Callable[[int], str]) -> str:
        """Return the name of a label, before the input is replaced."""
        return self.class_label(label, token_name)

    def describe_extra_inputs(
        self, extra_inputs: Mapping[str, int], token_name: Callable[[int], str]
    ) -> dict[str, int | str]:
        """Return the extra inputs of a target, readable where possible."""
        return dict(extra_inputs)


def combined_visibility(objectives: Sequence[Objective]) -> Visibility:
    """Return the visibility of objectives that share a pass; ValueError if they conflict."""
    visibilities = [visibility for o in objectives if (visibility := o.visibility) is not None] or [
        BidirectionalVisibility()
    ]
    if any(visibility != visibilities[0] for visibility in visibilities):
        names = ", ".join(dict.fromkeys(str(objective.kind) for objective in objectives))  # type: ignore[attr-defined]
        raise ValueError(
            f"{names} need different visibility: put them in separate phases, or give each a "
            f"fraction of the steps"
        )
    return visibilities[0]
