"""Predictions with sets of guaranteed coverage, and abstention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bertwright.core.errors import UserError
from bertwright.tasks.conformal.calibration import (
    ConformalCalibration,
    class_names,
    decision_index,
    is_number,
    require_sets,
)
from bertwright.tasks.conformal.scores import class_scores
from bertwright.tasks.example_encoder import TaskSequence, num_truncated_tokens
from bertwright.tasks.formats.examples import Examples, TaskExample
from bertwright.tasks.outputs.output_decoder import SequenceOutputs, group_by_example
from bertwright.tasks.outputs.prediction import Prediction
from bertwright.tasks.outputs.probabilities import FloatArray
from bertwright.tasks.task import Task

if TYPE_CHECKING:
    from bertwright.tasks.fine_tuned_model import FineTunedModel


@dataclass(frozen=True)
class ConformalPredictor:
    """A calibrated model whose predictions come with sets or intervals, or are withheld.

    Attributes:
        coverage: probability that the set of a new example holds its correct class, the set of a
            word its tag, or an interval the number; None for no sets.
        max_risk: largest fraction of errors among the predictions that are not withheld; None to
            withhold none.

    Errors: UserError for an output type without classes or numbers, for a model that is not
    calibrated, or only in another precision, and for a guarantee that its calibration does not
    give.
    """

    model: "FineTunedModel"
    coverage: float | None = None
    max_risk: float | None = None

    def __post_init__(self) -> None:
        if self.coverage is not None:
            self.calibration.set_threshold(self.coverage)
        if self.max_risk is not None:
            self.calibration.abstention_threshold(self.max_risk)

    @property
    def calibration(self) -> ConformalCalibration:
        """The calibration of the model."""
        require_sets(self.model)
        if self.model.conformal is None:
            raise UserError(
                "this model has no calibration for sets: run bertwright calibrate MODEL --data "
                "FILE with labelled examples that it was not trained on"
            )
        if self.model.conformal.is_int8 != self.model.is_int8:
            calibrated, computing = ("float", "int8") if self.model.is_int8 else ("int8", "float")
            raise UserError(
                f"this model is calibrated in {calibrated} and computes in {computing}, where its "
                f"sets keep no coverage: load it with the other precision, or run bertwright "
                f"calibrate with this one (--precision)"
            )
        return self.model.conformal

    @property
    def task(self) -> Task:
        """The task of the model."""
        return self.model.task

    @property
    def can_use_stride(self) -> bool:
        """Return whether the model could read long texts in windows, but truncates them."""
        return self.model.can_use_stride

    def predict_examples(self, examples: Examples) -> tuple[list[Prediction], Mapping[int, int]]:
        """Return the predictions, and the number of truncated tokens of each truncated example."""
        sequences = self.model.output_decoder.encode(self.model.example_encoder, examples)
        predictions = self.decode(sequences, self.model.head_outputs(sequences), examples)
        return predictions, num_truncated_tokens(sequences)

    def decode(
        self, sequences: Sequence[TaskSequence], outputs: Sequence[FloatArray], examples: Examples
    ) -> list[Prediction]:
        """Return the predictions for examples, given the head outputs of their sequences."""
        predictions = self.model.output_decoder.decode(sequences, outputs, examples)
        groups = group_by_example(sequences, outputs, len(examples))
        return [
            self._complete(prediction, example, parts)
            for prediction, example, parts in zip(predictions, examples, groups, strict=True)
        ]

    def _complete(
        self, prediction: Prediction, example: TaskExample, parts: list[SequenceOutputs]
    ) -> Prediction:
        """Return a prediction with its sets or its interval, and whether it is withheld."""
        calibration, decoder = self.calibration, self.model.output_decoder
        probabilities = decoder.decision_probabilities(parts)
        if self.max_risk is not None:
            confidence = float(probabilities[0][decision_index(prediction, self.model)])
            threshold = calibration.abstention_threshold(self.max_risk)
            prediction = replace(prediction, abstains=confidence < threshold)
        if self.coverage is None:
            return prediction
        threshold = calibration.set_threshold(self.coverage)
        if calibration.method == "residual" or is_number(self.model):
            value = float(str(prediction.value))
            return replace(prediction, interval=(value - threshold, value + threshold))
        names = class_names(self.model, parts)
        scores = class_scores(calibration.method, probabilities, example.texts)
        sets = tuple(
            tuple(name for name, score in zip(names, decision, strict=True) if score <= threshold)
            for decision in scores
        )
        return replace(prediction, sets=sets)
