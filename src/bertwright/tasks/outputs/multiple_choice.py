"""Multiple choice: every option is a sequence, and the highest output wins."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example, MultipleChoice
from bertwright.tasks.metrics.metrics import accuracy, label_metric
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs, choice_logits
from bertwright.tasks.outputs.output_type import MetricFunction, OutputType, location_of
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray, softmax


class MultipleChoiceDecoder(OutputDecoder):
    """The decoder of :class:`MultipleChoiceOutput`."""

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[MultipleChoice]
    ) -> list[TaskSequence]:
        pairs: list[Example] = []
        indices: list[int] = []
        for index, example in enumerate(examples):
            if not example.options:
                raise UserError(f"{location_of(example)} has no options: give one or more")
            for option in example.options:
                ending = f"{example.question} {option}".strip()
                pairs.append(Example(example.text, ending) if example.text else Example(ending))
                indices.append(index)
        return example_encoder.encode(pairs, example_indices=indices)

    def targets(self, sequences: Sequence[TaskSequence], example: MultipleChoice) -> list[int]:
        assert example.label is not None, "training examples have labels"
        return [example.label]

    def logits(self, outputs: Tensor, output_lengths: Sequence[int]) -> Tensor:
        return choice_logits(outputs, output_lengths)

    def decode_example(
        self, example: MultipleChoice, parts: Sequence[SequenceOutputs]
    ) -> Prediction:
        logits = np.array([outputs[0, 0] for _, outputs in parts], np.float32)
        probabilities = softmax(logits, self.temperature)
        return Prediction(int(logits.argmax()), tuple(probabilities.tolist()))

    def decisions(self, parts: Sequence[SequenceOutputs]) -> Sequence[FloatArray]:
        return [np.array([[outputs[0, 0] for _, outputs in parts]], np.float32)]

    def decision_targets(self, example: MultipleChoice) -> Sequence[int | None]:
        return [example.label]


class MultipleChoiceOutput(OutputType):
    """One of several options: a softmax over one output per option (Radford et al. 2018).

    Each option is a sequence: the text, then the question with the option.
    """

    kind: Literal["option"] = "option"
    has_prediction_sets: ClassVar[bool] = True
    example_type: ClassVar[type] = MultipleChoice
    decoder_type: ClassVar[type[OutputDecoder]] = MultipleChoiceDecoder
    can_calibrate: ClassVar[bool] = True
    is_grouped: ClassVar[bool] = True
    question_segment: ClassVar[int | None] = 1
    metrics: ClassVar[Mapping[str, MetricFunction]] = {"accuracy": label_metric(accuracy)}
    default_metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def validate_example(self, example: MultipleChoice) -> None:
        label: Any = example.label
        is_index = isinstance(label, int) and not isinstance(label, bool)
        if label is not None and not (is_index and 0 <= label < len(example.options)):
            raise UserError(
                f"{location_of(example)}: the label {label!r} is none of the indices 0 to "
                f"{len(example.options) - 1} of the options"
            )
