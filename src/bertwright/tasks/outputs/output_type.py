"""The axis of output types: what a task predicts, and its training and decoding.

An :class:`OutputType` is plain data and part of the description of a task. It builds an
:class:`OutputDecoder`, which knows the labels: the decoder turns examples into sequences and
targets, head outputs into losses, and head outputs into predictions.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertwright.core.config import Config, did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.model import Model
from bertwright.models.retrieval_encoder import TextVectors
from bertwright.models.text_model import TextModel
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example, Examples, TaskExample
from bertwright.tasks.formats.labels import LabelKind
from bertwright.tasks.metrics.generated_text import ScoredText
from bertwright.tasks.metrics.metrics import Metric, MetricSums, mean_sums
from bertwright.tasks.outputs.calibration import CalibrationData, fit_calibration
from bertwright.tasks.outputs.probabilities import FloatArray, softmax

if TYPE_CHECKING:  # a model loads without SciPy
    from scipy.sparse import csr_matrix

PADDING_LOGIT = -1e9
"""Logit of padding among choices: effectively -inf, but subtracting it gives no NaN."""

SequenceOutputs = tuple[TaskSequence, FloatArray]
"""A sequence of an example and its outputs (k, K)."""

Activation = Literal["softmax", "sigmoid"]

OutputLevel = Literal["sequence", "token", "text"]
"""Whether a head reads a whole sequence or some of its positions, or a decoder generates text."""

MetricFunction = Callable[[Sequence[Any], Sequence[Any]], float]
"""A function of references and predictions; only a :class:`Metric` has an interval."""


@dataclass(frozen=True)
class Prediction:
    """The prediction of a model for one example.

    Attributes:
        value: a label, labels, a number, a text, the index of an option, or a tag for each word.
        probabilities: of each label or option; for tags, of the predicted tag of each word; for
            spans and generated texts, of the predicted text.
        start: the character of the text at which a predicted span begins.
        vectors: the representations of the example's texts, for texts that are encoded apart.
        scored_text: the generated text, and the likelihood of its reference.
        sets: for a coverage, the set of each decision: of the example, or of every word.
        interval: for a coverage, the lowest and the highest number.
        abstains: for a risk, whether the model is too uncertain; None without one.
    """

    value: str | float | int | tuple[str, ...]
    probabilities: dict[str, float] | tuple[float, ...] | float | None = None
    start: int | None = field(default=None, compare=False)
    vectors: "TextVectors | None" = field(default=None, compare=False, repr=False)
    scored_text: ScoredText | None = field(default=None, compare=False, repr=False)
    sets: tuple[tuple[str | int, ...], ...] | None = None
    interval: tuple[float, float] | None = None
    abstains: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as in files of predictions."""
        result: dict[str, Any] = {"prediction": self.value}
        if self.probabilities is not None:
            result["probabilities"] = self.probabilities
        if self.sets is not None:
            is_per_word = isinstance(self.value, tuple)
            result |= {"sets": self.sets} if is_per_word else {"set": self.sets[0]}
        if self.interval is not None:
            result["interval"] = self.interval
        if self.abstains is not None:
            result["abstains"] = self.abstains
        return result


class PredictingModel(Protocol):
    """A model whose head outputs, or whose generated texts, become predictions."""

    model: Model
    tokenizer: Tokenizer

    def head_outputs(self, sequences: Sequence[TaskSequence]) -> list[FloatArray]:
        """Return the head outputs of each sequence: (k, K) float32 each."""
        ...

    def token_weights(self, sequences: Sequence[TaskSequence]) -> "csr_matrix":
        """Return the token weights (N, V) of texts, for a head that weights tokens."""
        ...

    def language_id(self, language: str | None) -> int | None:
        """Return the index of a language embedding."""
        ...


class OutputType(Config):
    """The axis of output types: one kind of output with its settings."""

    example_type: ClassVar[type] = Example
    decoder_type: ClassVar[type["OutputDecoder"]]
    needs_pair: ClassVar[bool] = False
    """Whether an example must have two texts."""
    level: ClassVar[OutputLevel] = "sequence"
    label_kind: ClassVar[LabelKind] = "class"
    """How the label column of a table is parsed."""
    has_labels: ClassVar[bool] = False
    """Whether head outputs correspond to labels, which are read from the training examples."""
    min_labels: ClassVar[int] = 2
    allows_unseen_labels: ClassVar[bool] = False
    """Whether references may have labels that do not occur in training, as tags often do."""
    can_calibrate: ClassVar[bool] = False
    """Whether its probabilities can be calibrated with a temperature."""
    activation: ClassVar[Activation | None] = None
    """How the outputs of one sequence or token become probabilities; None if they do not, or only
    with those of other sequences or tokens."""
    has_prediction_sets: ClassVar[bool] = False
    """Whether it decides between classes or predicts a number, so that sets have a coverage."""
    is_grouped: ClassVar[bool] = False
    """Whether all sequences of an example are trained in the same step."""
    has_convex_loss: ClassVar[bool] = True
    """Whether the loss is convex in the head's outputs, so that a linear head can be solved for."""
    is_penalised: ClassVar[bool] = False
    """Whether a penalty on the head's outputs is added to the loss."""
    question_segment: ClassVar[int | None] = None
    """Segment of the question, which gets global attention if the encoder supports it (Beltagy et
    al. 2020, section 3.1); None if there is no question."""
    metrics: ClassVar[Mapping[str, MetricFunction]] = {}
    default_metrics: ClassVar[tuple[str, ...]] = ()

    @property
    def can_use_stride(self) -> bool:
        """True if long texts could be split into windows, but ``stride`` is not set."""
        return False

    @property
    def has_output_positions(self) -> bool:
        """True if the head reads some positions of a sequence that the sequence names."""
        return self.level == "token"

    @property
    def has_in_batch_negatives(self) -> bool:
        """True if the examples of a step are compared with each other, so it cannot be split."""
        return False

    def build_decoder(self, labels: Sequence[str], temperature: float = 1.0) -> "OutputDecoder":
        """Return the decoder for these labels."""
        return self.decoder_type(self, tuple(labels), temperature)

    def reference(self, example: Any) -> Any:
        """Return the reference of an example; None if unknown."""
        return example.label

    def labels_in(self, example: Any) -> Sequence[str]:
        """Return the labels of an example."""
        return ()

    def trainable_examples(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Return the examples that can be trained on."""
        return examples

    def group(self, example: Any) -> str | None:
        """Return the group of an example, which splits keep together; None if it has none."""
        return None

    def default_metrics_for(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Return the default metrics of a task with these labels."""
        return self.default_metrics

    def require_metrics_defined(self, metrics: Sequence[str], labels: Iterable[str]) -> None:
        """Raise UserError for labels on which a metric is undefined."""

    def strata(self, examples: Sequence[Any]) -> list[str]:
        """Return the stratum of each example: its rarest label, or "" without labels."""
        labels = [self.labels_in(example) for example in examples]
        counts = Counter(label for names in labels for label in set(names))
        return [
            min(names, key=lambda label: (counts[label], label), default="") for names in labels
        ]

    def metric(self, name: str) -> MetricFunction:
        """Return a metric by name."""
        if name not in self.metrics:
            hint = did_you_mean(name, self.metrics)
            raise UserError(f"no metric {name!r} for output type {self.kind_name()}{hint}")
        return self.metrics[name]

    def score(
        self, metrics: Sequence[str], examples: Sequence[Any], predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        """Compute metrics over examples with known references."""

        @cache
        def inputs(for_ranking: bool) -> tuple[Sequence[Any], Sequence[Any]]:
            return self.metric_inputs(examples, predictions, for_ranking)

        functions = {name: self.metric(name) for name in metrics}
        return {name: f(*inputs(is_ranking_metric(f))) for name, f in functions.items()}

    def metric_sums(
        self, name: str, examples: Sequence[Any], predictions: Sequence[Prediction]
    ) -> MetricSums:
        """Return the sums of a metric over examples; a plain function is treated as a mean."""
        metric = self.metric(name)
        inputs = self.metric_inputs(examples, predictions, is_ranking_metric(metric))
        if isinstance(metric, Metric):
            return metric.sums(*inputs)
        return mean_sums([metric([a], [b]) for a, b in zip(*inputs, strict=True)])

    def metric_inputs(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], for_ranking: bool
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return references and predictions; for rankings, relevance and scores by query."""
        return [self.reference(e) for e in examples], [p.value for p in predictions]

    def calibrate(
        self,
        output_decoder: "OutputDecoder",
        sequences: Sequence[TaskSequence],
        read_outputs: Callable[[], Sequence[FloatArray]],
        examples: Examples,
    ) -> "CalibrationResult | None":
        """Fit a temperature for a trained model on held-out examples; return the calibration.

        None if nothing can be calibrated; ``read_outputs`` is then not called.
        """
        data = (
            output_decoder.calibration_data(sequences, read_outputs(), examples)
            if self.can_calibrate
            else None
        )
        if not data or not self.has_distinct_references(examples):
            return None
        calibration = fit_calibration(data)
        return CalibrationResult(self, calibration.temperature, calibration.as_dict())

    def has_distinct_references(self, examples: Examples) -> bool:
        """Return whether references differ: calibration needs at least two different ones."""
        labels = {label for example in examples for label in self.labels_in(example)}
        return not self.has_labels or len(labels) > 1

    def uncalibrated(self) -> "OutputType":
        """Return the output type without the values calibrated for a model."""
        return self

    def validate_examples(self, examples: Examples) -> None:
        """Raise UserError, with file and line, for an invalid example."""
        for example in examples:
            if not isinstance(example, self.example_type):
                raise UserError(
                    f"{location_of(example)}: output type {self.kind_name()} needs "
                    f"{self.example_type.__name__}, not {type(example).__name__}"
                )
            self.validate_example(example)

    def validate_example(self, example: Any) -> None:
        """Raise UserError for invalid contents of an example."""
        self.reference(example)


class CalibrationResult(NamedTuple):
    """A calibrated output type, its temperature, and the measured values."""

    output_type: OutputType
    temperature: float
    metrics: Mapping[str, float]


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


def is_ranking_metric(metric: MetricFunction) -> bool:
    """Return whether a metric scores rankings of each query's texts."""
    return isinstance(metric, Metric) and metric.is_ranking


def location_of(example: TaskExample) -> str:
    """Return the location of an example for messages."""
    return example.location or "an example"


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
