"""Objectives: targets, heads and losses of pre-training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.formats import InputFormat
from bertwright.batches.masking import MaskSelection, SelectedPositions
from bertwright.batches.masking.corruption import Corruption
from bertwright.batches.noising import Noising
from bertwright.batches.targets import BatchWithTargets, Targets, token_targets
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.config import Config
from bertwright.core.rng import CounterRng
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    SameDocumentVisibility,
    Visibility,
)
from bertwright.modules.embeddings.embeddings import Embeddings
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, GeneratorInput, Loss, ModelOutput


@dataclass(frozen=True)
class MaskingContext:
    """The inputs of masking besides the sequences.

    ``rng`` is keyed by the seed and the sequences, so all randomness is a function of these.
    ``earlier_targets`` are the targets of the preceding objectives by name.
    """

    rng: CounterRng
    vocabulary: Vocabulary
    progress: float = 0.0
    earlier_targets: Mapping[str, Targets] = field(default_factory=dict[str, Targets])


@dataclass(frozen=True)
class HeadContext:
    """The inputs for building a head.

    They are the encoder's config and embeddings, the dimension of text vectors, and a pooler to
    share.
    """

    encoder_config: EncoderConfig
    embeddings: Embeddings
    vocab_size: int
    vector_width: int
    pooler: nn.Linear | None = None


class Objective(Config):
    """A pre-training objective.

    ``weight`` scales the mean loss if several objectives share a step. Objectives with a
    ``fraction`` alternate: each step trains one of them, drawn by relative fractions. Objectives
    without a fraction take part in every step. ``task`` is the index of the task embedding in an
    encoder with ``embeddings.tasks`` (Sun et al. 2019b).
    """

    weight: NumberOrSchedule = ConstantSchedule(value=1.0)
    fraction: float | None = Field(default=None, gt=0.0)
    task: int | None = Field(default=None, ge=0, le=1_024)

    capabilities: ClassVar[Capabilities] = Capabilities()

    @property
    def permutes_input(self) -> bool:
        """Return whether tokens that are not targets change position."""
        return self.capabilities.permutes_input

    @property
    def mask_selection(self) -> MaskSelection | None:
        """Return the selection of predicted positions; None if there is no such setting."""
        return None

    @property
    def token_corruption(self) -> Corruption | None:
        """Return the corruption of masked tokens; None if there is no such setting."""
        return None

    @property
    def prediction_shift(self) -> int:
        """Return the distance from the predicting hidden state to the masked position."""
        return 0

    @property
    def decoder_noising(self) -> Noising | None:
        """Return the noising of the text that a decoder reconstructs; None without a decoder."""
        return None

    @property
    def input_format(self) -> InputFormat | None:
        """Return the input format of its steps, at the usual length; None for the recipe's."""
        return None

    @property
    def visibility(self) -> Visibility | None:
        """Return the attention rule required besides the encoder's own; None if any works."""
        return BidirectionalVisibility()

    def order_conflict(
        self, preceding: "Mapping[str, Objective]", following: "Mapping[str, Objective]"
    ) -> str | None:
        """Return the reason why it cannot be listed between these objectives; None if it can."""
        capabilities, others = self.capabilities, [*preceding, *following]
        before, behind = (
            next((name for name, o in group.items() if o.capabilities.masks_input), None)
            for group in (preceding, following)
        )
        if self.permutes_input and capabilities.predicts_tokens and others:
            return f"changes the input, so it cannot share a step with {others[0]!r}: use it alone"
        if capabilities.prediction == "permutation" and preceding:
            return "appends query positions to the text: list it before all others"
        if (self.permutes_input or capabilities.detects_replacements) and preceding:
            return "must be the first of the objectives"
        if capabilities.corrupts_input:
            return behind and f"must not shuffle tokens masked by {behind!r}: list it behind"
        if capabilities.masks_input and before is not None:
            return f"would predict tokens that {before!r} shows: give each a fraction of the steps"
        return None

    def format_conflict(self, input_format: InputFormat) -> str | None:
        """Return the reason why it cannot use this input format; None if it can."""
        return None

    def for_evaluation(self, input_format: InputFormat) -> "Objective":
        """Return the objective for evaluation, with fixed masking if masking is a setting."""
        return self

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        """Return the corrupted sequences and the targets."""
        raise TypeError(f"{type(self).__name__} is an axis, not an objective")

    def make_targets_at(
        self,
        selected: SelectedPositions,
        is_masked: BoolArray,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
    ) -> BatchWithTargets | None:
        """Return sequences and targets for selected positions; None if no tokens are predicted.

        The hidden states that predict the targets do not depend on the tokens in ``is_masked``
        (B, L), which includes the targets: masked prediction has masks there, causal prediction
        only reads the tokens before them.
        """
        if self.capabilities.prediction == "causal":
            positions = np.maximum(selected.positions - 1, 0)
            return batch, token_targets(batch, positions, selected.weights, shift=1)
        if self.capabilities.prediction != "masked":
            return None
        token_ids = np.where(is_masked, np.int32(vocabulary.specials.mask), batch.token_ids)
        targets = token_targets(batch, selected.positions, selected.weights)
        return replace(batch, token_ids=token_ids), self.drop_unreachable(targets, batch)

    def drop_unreachable(self, targets: Targets, batch: SequenceBatch) -> Targets:
        """Return the targets without those to be predicted from the previous sequence."""
        is_reachable = targets.positions % batch.token_ids.shape[1] >= self.prediction_shift
        return replace(targets, weights=targets.weights * is_reachable)

    def label_positions(self, targets: Targets) -> IntArray | None:
        """Return the flat positions (M,) of the tokens that are the labels, before masking.

        Return None if labels are not tokens of the text.
        """
        if self.capabilities.prediction == "masked":
            return targets.positions
        return targets.positions + 1 if self.capabilities.prediction == "causal" else None

    def with_task_ids(self, batch: SequenceBatch) -> SequenceBatch:
        """Return the sequences with the task id of the objective."""
        if self.task is None:
            return batch
        task_ids = np.full(batch.token_ids.shape, self.task, np.int32)
        return replace(batch, token_info=replace(batch.token_info, task_ids=task_ids))

    def build_head(self, context: HeadContext) -> nn.Module | None:
        """Build the head of the objective; None if it has none."""
        return None

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        """Return the data or annotations that it needs and not every data set has."""
        return frozenset() if self.mask_selection is None else self.mask_selection.data_requirements

    @property
    def class_labels(self) -> Sequence[str] | None:
        """Return the names of the classes; None if these are the vocabulary."""
        return self.capabilities.class_labels or self.capabilities.relations or None

    def num_classes(self, vocab_size: int) -> int:
        """Return the number of classes."""
        return vocab_size if self.class_labels is None else len(self.class_labels)

    def class_label(self, class_id: int, token_name: Callable[[int], str]) -> str:
        """Return the name of a class; ``token_name`` returns the name of a token."""
        return token_name(class_id) if self.class_labels is None else self.class_labels[class_id]

    def targets_per_token(self, length: int) -> float:
        """Return the targets of the LM head per input token, for sequences of this length."""
        if self.decoder_noising is not None:
            return self.decoder_noising.num_targets(length) / length
        if self.mask_selection is not None:
            return self.mask_selection.masking_rate.at(0.5)
        return 1.0 if self.capabilities.prediction == "causal" else 0.0

    def states_per_token(self, length: int, group: Mapping[str, "Objective"]) -> float:
        """Return the hidden states used per input token, for sequences of this length.

        It matters only if :meth:`output_positions` selects positions. ``group`` holds all
        objectives of the step.
        """
        return self.targets_per_token(length) if self.capabilities.reads_targets_only else 1.0

    def num_decoder_positions(self, length: int) -> int:
        """Return the number of decoder positions for sequences of this length."""
        return 0 if self.decoder_noising is None else self.decoder_noising.num_positions(length)

    @property
    def query_stream_fraction(self) -> float:
        """Return the number of query positions appended to a sequence, relative to its length."""
        return self.targets_per_token(1) if self.capabilities.prediction == "permutation" else 0.0

    def head_flops(
        self, encoder: EncoderConfig, vocab_size: int, length: int, group: Mapping[str, "Objective"]
    ) -> float:
        """Return the FLOPs per input token of its own head, if it predicts tokens.

        ``group`` holds all objectives of the step.
        """
        return 0.0

    def generator_config(self, encoder: EncoderConfig) -> EncoderConfig | None:
        """Return the encoder config of the generator; None if the objective has no generator.

        Errors: ValueError if this encoder cannot have the generator.
        """
        return None

    def replace_tokens(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: nn.Module | None
    ) -> tuple[Tensor, Loss]:
        """Run the generator; return the encoder's input ids (B, L) and the loss."""
        raise TypeError(f"{type(self).__name__} has no generator")

    def output_positions(self, targets: DeviceTargets) -> Tensor | None:
        """Return the flat positions (M,) of the hidden states it uses; None for most or all."""
        if not self.capabilities.reads_targets_only:
            return None
        return (targets.positions - self.prediction_shift).clamp(min=0)

    def hidden_states(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        """Return the hidden states (M, D) from which tokens are predicted."""
        positions = self.output_positions(targets)
        return output.states_at(targets.positions if positions is None else positions)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        """Return the loss; by default, of predicting tokens."""
        return output.token_loss(self.hidden_states(targets, output), targets)

    def logits(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Tensor | None:
        """Return the logits (M, C); None if the objective is not a classification.

        For a generator use :meth:`generator_logits`.
        """
        if not self.capabilities.predicts_tokens:
            return None
        return output.token_logits(self.hidden_states(targets, output))

    def generator_logits(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: nn.Module | None
    ) -> Tensor | None:
        """Return the logits (M, V) of the generator; None if the objective has none."""
        return None

    def true_labels(self, labels: Tensor, input_ids: Tensor) -> Tensor:
        """Return the correct classes (M,), given labels and input ids at the targets, (M,)."""
        return labels

    def target_label(self, label: int, token_name: Callable[[int], str]) -> str:
        """Return the name of a label before the generator replaces input tokens."""
        return self.class_label(label, token_name)

    def describe_extra_inputs(
        self, extra_inputs: Mapping[str, int], token_name: Callable[[int], str]
    ) -> dict[str, int | str]:
        """Return the extra inputs of a target in readable form, if possible."""
        return dict(extra_inputs)


def combined_visibility(objectives: Sequence[Objective]) -> Visibility:
    """Return the attention rule of objectives that share a pass; ValueError if they conflict.

    Objectives that read whole sequences also read isolated texts.
    """
    visibilities = [visibility for o in objectives if (visibility := o.visibility) is not None]
    if SameDocumentVisibility() in visibilities:
        visibilities = [v for v in visibilities if v != BidirectionalVisibility()]
    visibilities = visibilities or [BidirectionalVisibility()]
    if any(visibility != visibilities[0] for visibility in visibilities):
        names = ", ".join(dict.fromkeys(str(objective.kind) for objective in objectives))  # type: ignore[attr-defined]
        raise ValueError(
            f"{names} need different visibility: put them in separate phases, or give each a "
            f"fraction of the steps"
        )
    return visibilities[0]
