"""An ensemble: the mean prediction of several models that were fine-tuned for one task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bertwright.core.errors import UserError
from bertwright.tasks.example_encoder import TaskSequence, num_truncated_tokens
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.inputs import TaskInputs, as_examples
from bertwright.tasks.outputs import FloatArray, Prediction


class Ensemble:
    """Models of one task, with the interface of one: calibrated probabilities are averaged.

    Numbers are averaged as they are. The models may differ in everything else, such as a forward
    and a backward language model (Howard and Ruder 2018, section 3.3).

    Errors: UserError for models of different tasks, and for output types without a mean.
    """

    def __init__(self, models: Sequence[FineTunedModel]) -> None:
        if not models:
            raise UserError("an ensemble needs at least one model")
        self.models = tuple(models)
        self.first, *others = models
        self.task = self.first.task
        output_type = self.task.output_type.for_prediction()
        for model in others:
            if model.task.output_type.for_prediction() != output_type:
                raise UserError(
                    f"the models of an ensemble have one output type, not "
                    f"{output_type.kind_name()} and {model.task.output_type.kind_name()} with "
                    f"other settings: fine-tune them for the same task"
                )
            if model.task.labels != self.task.labels:
                raise UserError(
                    f"the models of an ensemble have the same labels, not "
                    f"{', '.join(self.task.labels)} and {', '.join(model.task.labels)}: fine-tune "
                    f"them on the same data"
                )
        self.output_decoder = output_type.build_decoder(self.task.labels)

    @property
    def can_use_stride(self) -> bool:
        """Return whether the models could read long texts in windows, but truncate them."""
        return any(model.can_use_stride for model in self.models)

    def predict(self, inputs: TaskInputs) -> list[Prediction]:
        """Predict as :meth:`FineTunedModel.predict`."""
        return self.predict_examples(as_examples(inputs, self.task))[0]

    def predict_examples(self, examples: Examples) -> tuple[list[Prediction], Mapping[int, int]]:
        """Return the predictions, and the number of tokens that the first model truncates."""
        by_model: list[list[FloatArray]] = []
        sequences = self.first.output_decoder.encode(self.first.example_encoder, examples)
        for model in self.models:
            encoded = model.output_decoder.encode(model.example_encoder, examples)
            if [len(s.positions) for s in encoded] != [len(s.positions) for s in sequences]:
                raise UserError(
                    "the models of an ensemble split an example into different windows: fine-tune "
                    "them with the same max_length"
                )
            outputs = model.head_outputs(encoded)
            by_model.append([*model.output_decoder.share_windows(encoded, outputs)])
        temperatures = [model.temperature for model in self.models]
        predictions = self._decode(sequences, by_model, temperatures, examples)
        if self.task.output_type.decides_before_calibration and set(temperatures) != {1.0}:
            ones = [1.0] * len(temperatures)
            decided = self._decode(sequences, by_model, ones, examples)
            predictions = [
                replace(prediction, value=uncalibrated.value)
                for prediction, uncalibrated in zip(predictions, decided, strict=True)
            ]
        return predictions, num_truncated_tokens(sequences)

    def _decode(
        self,
        sequences: Sequence[TaskSequence],
        by_model: Sequence[Sequence[FloatArray]],
        temperatures: Sequence[float],
        examples: Examples,
    ) -> list[Prediction]:
        """Return the predictions from the mean of the models' outputs for each sequence."""
        means = [
            self._mean([o / t for o, t in zip(outputs, temperatures, strict=True)])
            for outputs in zip(*by_model, strict=True)
        ]
        return self.output_decoder.decode(sequences, means, examples)

    def _mean(self, outputs: Sequence[FloatArray]) -> FloatArray:
        mean = self.output_decoder.average(outputs)
        if mean is None:
            raise UserError(
                f"output type {self.task.output_type.kind_name()} has no mean prediction: use one "
                f"of the models"
            )
        return mean
