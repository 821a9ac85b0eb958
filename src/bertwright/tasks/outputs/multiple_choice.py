"""Multiple choice: every option is a sequence, and the highest output wins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example, Examples, MultipleChoice
from bertwright.tasks.metrics import metrics
from bertwright.tasks.outputs.calibration import CalibrationData, CalibrationExample
from bertwright.tasks.outputs.output_type import (
    FloatArray,
    Metric,
    OutputDecoder,
    OutputType,
    Prediction,
    choice_logits,
    cross_entropy,
    group_by_example,
    location_of,
    softmax,
)


class MultipleChoiceOutput(OutputType):
    """One of several options: a softmax over one output per option (Radford et al. 2018).

    A sequence is the text, then the question with the option.
    """

    kind: Literal["option"] = "option"
    can_calibrate: ClassVar[bool] = True
    is_grouped: ClassVar[bool] = True
    question_segment: ClassVar[int | None] = 1
    metrics: ClassVar[Mapping[str, Metric]] = {"accuracy": metrics.accuracy}
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def example_types(self) -> tuple[type, ...]:
        return (MultipleChoice,)

    def validate_examples(self, examples: Examples) -> None:
        super().validate_examples(examples)
        for example in cast(Sequence[MultipleChoice], examples):
            label: Any = example.label
            is_index = isinstance(label, int) and not isinstance(label, bool)
            if label is not None and not (is_index and 0 <= label < len(example.options)):
                raise UserError(
                    f"{location_of(example)}: the label {label!r} is none of the indices 0 to "
                    f"{len(example.options) - 1} of the options"
                )

    def build_decoder(
        self, labels: Sequence[str], temperature: float = 1.0
    ) -> "MultipleChoiceDecoder":
        return MultipleChoiceDecoder(temperature)


@dataclass(frozen=True)
class MultipleChoiceDecoder(OutputDecoder):
    """The decoder of :class:`MultipleChoiceOutput`."""

    temperature: float = 1.0

    def encode(self, example_encoder: ExampleEncoder, examples: Examples) -> list[TaskSequence]:
        pairs: list[Example] = []
        indices: list[int] = []
        for index, example in enumerate(examples):
            assert isinstance(example, MultipleChoice)
            for option in example.options:
                ending = f"{example.question} {option}".strip()
                pairs.append(Example(example.text, ending) if example.text else Example(ending))
                indices.append(index)
        return example_encoder.encode(pairs, example_indices=indices)

    def targets(self, sequences: Sequence[TaskSequence], example: MultipleChoice) -> list[int]:
        assert example.label is not None, "training examples have labels"
        return [example.label]

    def loss(
        self, outputs: Tensor, output_lengths: Sequence[int], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        return cross_entropy(self.logits(outputs, output_lengths), targets)

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        return choice_logits(outputs, output_lengths)

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        predictions: list[Prediction] = []
        for options in group_by_example(sequences, outputs, len(examples)):
            logits = np.array([output[0, 0] for _, output in options], np.float32)
            probabilities = softmax(logits, self.temperature)
            predictions.append(Prediction(int(logits.argmax()), tuple(probabilities.tolist())))
        return predictions

    def calibration_data(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> CalibrationData:
        items = group_by_example(sequences, outputs, len(examples))
        logits = np.full((len(items), max(map(len, items), default=1)), -np.inf)
        for index, options in enumerate(items):
            logits[index, : len(options)] = [output[0, 0] for _, output in options]
        labels = [cast(int, cast(MultipleChoice, example).label) for example in examples]
        return CalibrationData.from_examples(
            CalibrationExample(index, labels[index], row[None]) for index, row in enumerate(logits)
        )
