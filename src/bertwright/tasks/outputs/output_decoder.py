"""Output decoders: how a head is trained for an output type, and how its outputs are decoded."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertwright.models.text_model import TextModel
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs.calibration import CalibrationData
from bertwright.tasks.outputs.output_type import OutputType
from bertwright.tasks.outputs.prediction import PredictingModel, Prediction
from bertwright.tasks.outputs.probabilities import FloatArray, softmax

PADDING_LOGIT = -1e9
"""Logit of padding among choices: effectively -inf, but subtracting it gives no NaN."""


SequenceOutputs = tuple[TaskSequence, FloatArray]
"""A sequence of an example and its outputs (k, K)."""


@dataclass(frozen=True)
class OutputDecoder(ABC):
    """The training and decoding of one output type.

    A head gives outputs (M, K) for every item: a sequence or, for grouped output types, all
    sequences of an example. Each sequence has as many outputs as ``output_length`` returns.
    """

    config: OutputType
    labels: tuple[str, ...] = ()
    temperature: float = 1.0

    @property
    def num_outputs(self) -> int:
        """K, the number of outputs; 0 if the pooled states are the output, without a classifier."""
        return len(self.labels) if self.config.has_labels else 1

    def fit(self, examples: Sequence[Any]) -> Self:
        """Return the decoder fitted to training examples: label scale and weights."""
        return self

    def init_classifier(self, classifier: nn.Module, source: TextModel) -> None:
        """Initialise the classifier from a pretrained model, where possible."""
        return

    def init_lm_head(self, lm_head: LMHead, source: TextModel) -> None:
        """Adjust the language-model head, which is a copy of the pretrained model's."""
        return

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[Any]
    ) -> list[TaskSequence]:
        """Return the sequences of all examples, in order."""
        return example_encoder.encode(examples)

    def output_length(self, sequence: TaskSequence) -> int:
        """Return the number of outputs of a sequence."""
        return len(sequence.positions) or 1

    @abstractmethod
    def targets(self, sequences: Sequence[TaskSequence], example: Any) -> list[float] | list[int]:
        """Return the training targets of an item."""

    def has_target(self, targets: Sequence[Sequence[float]], example: Any) -> bool:
        """Return whether the targets of an example's items contain its reference."""
        return True

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the loss summed over the targets, and the number of correct ones.

        ``outputs`` (M, K) are concatenated over items; ``output_lengths`` holds the number of
        outputs of each item; ``targets`` (T,) come from :meth:`targets`. The default is
        cross-entropy.
        """
        return cross_entropy(self.logits(outputs, output_lengths), targets)

    def penalty(self, outputs: Tensor, output_lengths: Sequence[int], fraction: float) -> Tensor:
        """Return the penalty () on the outputs of a step; ``fraction`` of the run is completed."""
        return outputs.new_zeros(())

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Any:
        """Return logits (N, C) over the classes; None for regression."""
        return outputs

    def comparable_outputs(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        """Return outputs (N, C) that can be compared with another model's."""
        return outputs

    def predict(
        self, model: PredictingModel, sequences: Sequence[TaskSequence], examples: Examples
    ) -> list[Prediction]:
        """Return a model's predictions for all examples, given their sequences."""
        return self.decode(sequences, model.head_outputs(sequences), examples)

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        """Return the predictions for all examples; ``outputs`` has (k, K) per sequence."""
        groups = group_by_example(sequences, outputs, len(examples))
        return [self.decode_example(e, parts) for e, parts in zip(examples, groups, strict=True)]

    @abstractmethod
    def decode_example(self, example: Any, parts: Sequence[SequenceOutputs]) -> Prediction:
        """Return the prediction for an example from its sequences."""

    def calibration_data(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> CalibrationData:
        """Return the data for fitting a temperature; empty for other output types."""
        groups = group_by_example(sequences, outputs, len(examples))
        return CalibrationData.from_decisions(
            [
                (index, *decision)
                for index, (example, parts) in enumerate(zip(examples, groups, strict=True))
                for decision in self.calibration_decisions(example, parts)
            ]
        )

    def calibration_decisions(
        self, example: Any, parts: Sequence[SequenceOutputs]
    ) -> Iterable[tuple[int, FloatArray]]:
        """Return an example's decisions with a known class: the class, and :meth:`decisions`."""
        targets = self.decision_targets(example)
        for target, outputs in zip(targets, self.decisions(parts), strict=True):
            if target is not None:
                yield target, outputs

    def decisions(self, parts: Sequence[SequenceOutputs]) -> Sequence[FloatArray]:
        """Return the outputs (R, K) of each decision of an example between K classes.

        The probabilities of R windows are averaged. Other output types decide nothing.
        """
        return ()

    def decision_targets(self, example: Any) -> Sequence[int | None]:
        """Return the correct class of each decision of an example; None for an unknown class."""
        return ()

    def decision_probabilities(self, parts: Sequence[SequenceOutputs]) -> list[FloatArray]:
        """Return the calibrated probabilities (K,) of each decision of an example."""
        return [softmax(outputs, self.temperature).mean(0) for outputs in self.decisions(parts)]

    def share_windows(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray]
    ) -> Sequence[FloatArray]:
        """Return outputs in which the windows of a text share what they are pooled to, if they are.

        These decode to the same predictions, and can be averaged over models.
        """
        return outputs

    def average(self, outputs: Sequence[FloatArray]) -> FloatArray | None:
        """Return outputs (k, K) that decode to the mean prediction of several models.

        ``outputs`` are (k, K) of each model, divided by its temperature. None if predictions of
        this type have no mean.
        """
        return None

    def to_training_scale(self, outputs: Tensor) -> Tensor:
        """Convert outputs of a finished model to the scale of the training targets."""
        return outputs

    def fold_into(self, classifier: nn.Module) -> None:
        """Fold the target scaling of :meth:`fit` into the classifier."""
        return

    def unfold_from(self, classifier: nn.Module) -> None:
        """Undo :meth:`fold_into`, to continue training a finished model."""
        return


def group_by_example(
    sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], num_examples: int
) -> list[list[SequenceOutputs]]:
    """Return the sequences and outputs of each example."""
    groups: list[list[SequenceOutputs]] = [[] for _ in range(num_examples)]
    for sequence, output in zip(sequences, outputs, strict=True):
        groups[sequence.example_index].append((sequence, output))
    return groups


def cross_entropy(
    outputs: Tensor, targets: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the summed loss and the number of correct predictions of outputs (M, K)."""
    loss = F.cross_entropy(outputs, targets, weights, reduction="sum")
    return loss, (outputs.argmax(-1) == targets).sum()


def choice_logits(outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
    """Return outputs (M, K) as logits (items * K, C), padded: K choices per item."""
    parts = list(outputs.split(list(output_lengths)))
    padded = pad_sequence(parts, batch_first=True, padding_value=PADDING_LOGIT)
    return padded.transpose(1, 2).flatten(0, 1)


def binary_logits(outputs: Tensor) -> Tensor:
    """Return each output as two logits, for no and yes: (M * K, 2)."""
    flat = outputs.flatten()
    return torch.stack((torch.zeros_like(flat), flat), 1)
