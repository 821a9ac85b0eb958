"""The axis of output types: what a task predicts, and its training and decoding.

An :class:`OutputType` is plain data and part of the description of a task. It builds an
:class:`OutputDecoder`, which knows the labels: the decoder turns examples into sequences and
targets, head outputs into losses, and head outputs into predictions.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from bertwright.core.config import Config, did_you_mean
from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.formats.examples import Example, Examples, TaskExample, require_texts
from bertwright.tasks.formats.labels import LabelKind
from bertwright.tasks.metrics.metrics import Metric, MetricSums, mean_sums
from bertwright.tasks.outputs.calibration import fit_calibration
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray

if TYPE_CHECKING:
    from bertwright.tasks.outputs.output_decoder import OutputDecoder


Activation = Literal["softmax", "sigmoid"]


OutputLevel = Literal["sequence", "token", "text"]
"""Whether a head reads a whole sequence or some of its positions, or a decoder generates text."""


MetricFunction = Callable[[Sequence[Any], Sequence[Any]], float]
"""A function of references and predictions; only a :class:`Metric` has an interval."""


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
    def decides_before_calibration(self) -> bool:
        """True if a temperature could change which probability is the highest or is enough.

        Predictions then depend on probabilities before temperature scaling.
        """
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
        self,
        metrics: Sequence[str],
        examples: Sequence[Any],
        predictions: Sequence[Prediction],
        parts: Sequence[slice] | None = None,
    ) -> dict[str, float]:
        """Compute metrics over examples with known references.

        ``parts`` are the examples that were predicted by different models, such as those of folds:
        each model ranks its part alone.
        """

        @cache
        def inputs(for_ranking: bool) -> tuple[Sequence[Any], Sequence[Any]]:
            return self._inputs_of_parts(examples, predictions, for_ranking, parts)

        functions = {name: self.metric(name) for name in metrics}
        return {name: f(*inputs(is_ranking_metric(f))) for name, f in functions.items()}

    def metric_sums(
        self,
        name: str,
        examples: Sequence[Any],
        predictions: Sequence[Prediction],
        parts: Sequence[slice] | None = None,
    ) -> MetricSums:
        """Return the sums of a metric over examples; a plain function is treated as a mean.

        ``parts`` are as in :meth:`score`.
        """
        metric = self.metric(name)
        inputs = self._inputs_of_parts(examples, predictions, is_ranking_metric(metric), parts)
        if isinstance(metric, Metric):
            return metric.sums(*inputs)
        return mean_sums([metric([a], [b]) for a, b in zip(*inputs, strict=True)])

    def metric_inputs(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], for_ranking: bool
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return references and predictions; for rankings, relevance and scores by query."""
        return [self.reference(e) for e in examples], [p.value for p in predictions]

    def _inputs_of_parts(
        self,
        examples: Sequence[Any],
        predictions: Sequence[Prediction],
        for_ranking: bool,
        parts: Sequence[slice] | None,
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the inputs of a metric, those of every part after each other."""
        if parts is None:
            return self.metric_inputs(examples, predictions, for_ranking)
        inputs = [
            self.metric_inputs(examples[part], predictions[part], for_ranking) for part in parts
        ]
        references = [value for of_part, _ in inputs for value in of_part]
        return references, [value for _, of_part in inputs for value in of_part]

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

    def for_prediction(self) -> "OutputType":
        """Return the output type without values of one model and settings of training alone."""
        return self.uncalibrated()

    def validate_examples(self, examples: Examples) -> None:
        """Raise UserError, with file and line, for an invalid example."""
        for example in examples:
            if not isinstance(example, self.example_type):
                raise UserError(
                    f"{location_of(example)}: output type {self.kind_name()} needs "
                    f"{self.example_type.__name__}, not {type(example).__name__}"
                )
            require_texts(example)
            self.validate_example(example)

    def validate_example(self, example: Any) -> None:
        """Raise UserError for invalid contents of an example."""
        self.reference(example)


class CalibrationResult(NamedTuple):
    """A calibrated output type, its temperature, and the measured values."""

    output_type: OutputType
    temperature: float
    metrics: Mapping[str, float]


def is_ranking_metric(metric: MetricFunction) -> bool:
    """Return whether a metric scores rankings of each query's texts."""
    return isinstance(metric, Metric) and metric.is_ranking


def location_of(example: TaskExample) -> str:
    """Return the location of an example for messages."""
    return example.location or "an example"
