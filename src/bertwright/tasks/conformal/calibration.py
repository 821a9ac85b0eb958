"""What a model keeps of its calibration examples: thresholds for every coverage and every risk."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.tasks.conformal.scores import SetMethod, class_scores, coverage_quantiles
from bertwright.tasks.conformal.selective_risk import selection_thresholds
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.outputs.output_decoder import SequenceOutputs, group_by_example
from bertwright.tasks.outputs.prediction import Prediction

if TYPE_CHECKING:
    from bertwright.tasks.fine_tuned_model import FineTunedModel

ScoreMethod = Literal["lac", "aps", "residual"]

LEVELS = 1000
"""Coverage and risk are kept in steps of 1 / LEVELS."""

MAX_RISK_LEVEL = 500
"""Largest risk that is kept, in steps."""


@dataclass(frozen=True)
class LabelledScores:
    """The scores of N decisions of labelled examples.

    Attributes:
        method: how classes are scored; ``residual`` for numbers.
        correct: (N,) score of the correct class, infinity if the model does not have it; for
            numbers, the absolute error.
        groups: (N,) index of the example of each decision.
        all_scores: the scores (K,) of all classes in each decision; empty for numbers.
        confidences: probability of the prediction of each example; empty for tags and numbers.
        is_correct: whether each of these predictions is correct.
        is_int8: whether the model computed in int8.
    """

    method: ScoreMethod
    correct: NDArray[np.float64]
    groups: NDArray[np.int64]
    all_scores: Sequence[NDArray[np.floating]]
    confidences: NDArray[np.float64]
    is_correct: NDArray[np.bool_]
    is_int8: bool

    def select(self, examples: NDArray[np.int64]) -> "LabelledScores":
        """Return the scores of some examples."""
        decisions = np.flatnonzero(np.isin(self.groups, examples))
        has_confidence = len(self.confidences) > 0
        return LabelledScores(
            self.method,
            self.correct[decisions],
            self.groups[decisions],
            [self.all_scores[n] for n in decisions.tolist()] if self.all_scores else (),
            self.confidences[examples] if has_confidence else self.confidences,
            self.is_correct[examples] if has_confidence else self.is_correct,
            self.is_int8,
        )

    def calibrate(self) -> "ConformalCalibration":
        """Return the thresholds for these scores."""
        levels = np.arange(1, LEVELS) / LEVELS
        quantiles = coverage_quantiles(self.correct, self.groups, levels)
        risks = levels[:MAX_RISK_LEVEL].tolist() if len(self.confidences) else []
        return ConformalCalibration(
            method=self.method,
            num_examples=len(np.unique(self.groups)),
            quantiles=tuple(quantiles[np.isfinite(quantiles)].tolist()),
            confidences=tuple(selection_thresholds(self.confidences, self.is_correct, risks)),
            is_int8=self.is_int8,
        )

    def coverage(self, threshold: float) -> float:
        """Return the fraction of covered decisions: the mean over examples."""
        covered = (self.correct <= threshold).astype(np.float64)
        _, groups, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        return float((np.bincount(groups, covered) / sizes).mean())

    def mean_size(self, threshold: float) -> float:
        """Return the mean number of classes in a set, or the mean width of an interval."""
        if not self.all_scores:
            return 2.0 * threshold
        return float(np.mean([(scores <= threshold).sum() for scores in self.all_scores]))


class ConformalCalibration(Settings):
    """Thresholds of prediction sets and of abstention, from examples that nothing else used.

    Attributes:
        method: how classes are scored; ``residual`` for numbers.
        num_examples: number of calibration examples.
        quantiles: the score up to which sets reach, for a coverage of 0.001, 0.002 and so on, as
            far as there are enough examples.
        confidences: the confidence from which a model does not abstain, for a risk of 0.001, 0.002
            and so on; None if no confidence keeps it. Empty for tags and numbers.
        is_int8: whether the model computed in int8, whose outputs need thresholds of their own.
    """

    method: ScoreMethod
    num_examples: int = Field(ge=1)
    quantiles: Annotated[tuple[float, ...], Field(max_length=LEVELS)]
    confidences: Annotated[tuple[float | None, ...], Field(max_length=LEVELS)] = ()
    is_int8: bool = False

    def set_threshold(self, coverage: float) -> float:
        """Return the score up to which sets reach; the coverage is rounded up to a step.

        Errors: UserError for a coverage outside (0, 1), or that needs more examples.
        """
        if not 0.0 < coverage < 1.0:
            raise UserError(f"coverage {coverage:g}: choose from 0.001 to 0.999, such as 0.9")
        level = int(np.ceil(coverage * LEVELS - 1e-9))
        if level > len(self.quantiles):
            raise UserError(
                f"coverage {coverage:g} needs more examples than the {self.num_examples:,} that "
                f"the model is calibrated with: choose {len(self.quantiles) / LEVELS:g} or less, "
                f"or run calibrate with more"
            )
        return self.quantiles[level - 1]

    def abstention_threshold(self, risk: float) -> float:
        """Return the confidence below which the model abstains; the risk is rounded down to a step.

        Errors: UserError for a risk outside (0, 0.5], for an output without confidences, and for a
        risk that no confidence keeps.
        """
        if not self.confidences:
            raise UserError(
                "abstention is for models that choose one class or option per text: use coverage"
            )
        level = int(np.floor(risk * LEVELS + 1e-9)) if np.isfinite(risk) else 0
        if not 1 <= level <= len(self.confidences):
            raise UserError(f"risk {risk:g}: choose a fraction from 0.001 to 0.5, such as 0.05")
        threshold = self.confidences[level - 1]
        if threshold is None:
            raise UserError(
                f"no confidence of this model keeps the risk at {risk:g} on "
                f"{count_noun(self.num_examples, 'calibration example')}: choose a greater risk, "
                f"or run calibrate with more examples"
            )
        return threshold


def labelled_scores(
    model: "FineTunedModel", examples: Examples, method: SetMethod = "lac"
) -> LabelledScores:
    """Return the scores of a model for labelled examples that it was not trained on.

    Errors: UserError for an output type without classes or numbers.
    """
    require_sets(model)
    decoder, output_type = model.output_decoder, model.task.output_type
    sequences = decoder.encode(model.example_encoder, examples)
    outputs = model.head_outputs(sequences)
    predictions = decoder.decode(sequences, outputs, examples)
    if is_number(model):
        references = [float(output_type.reference(example)) for example in examples]
        errors = np.abs(np.array([p.value for p in predictions], np.float64) - references)
        none = np.empty(0)
        groups = np.arange(len(errors))
        return LabelledScores(
            "residual", errors, groups, (), none, none.astype(bool), model.is_int8
        )
    correct: list[float] = []
    example_numbers: list[int] = []
    all_scores: list[NDArray[np.floating]] = []
    confidences: list[float] = []
    is_correct: list[bool] = []
    parts_by_example = group_by_example(sequences, outputs, len(examples))
    for index, (example, parts) in enumerate(zip(examples, parts_by_example, strict=True)):
        probabilities = decoder.decision_probabilities(parts)
        targets = decoder.decision_targets(example)
        scores = class_scores(method, probabilities, example.texts)
        for target, decision in zip(targets, scores, strict=True):
            correct.append(float("inf") if target is None else float(decision[target]))
        example_numbers += [index] * len(scores)
        all_scores += scores
        if not isinstance(predictions[index].value, tuple):
            predicted = decision_index(predictions[index], model)
            confidences.append(float(probabilities[0][predicted]))
            is_correct.append(predicted == targets[0])
    return LabelledScores(
        method,
        np.array(correct),
        np.array(example_numbers),
        all_scores,
        np.array(confidences, np.float64),
        np.array(is_correct, bool),
        model.is_int8,
    )


def decision_index(prediction: Prediction, model: "FineTunedModel") -> int:
    """Return the index of the predicted class or option."""
    value = prediction.value
    return value if isinstance(value, int) else model.task.labels.index(str(value))


def require_sets(model: "FineTunedModel") -> None:
    """Raise UserError for an output type without classes or numbers."""
    output_type = model.task.output_type
    if not output_type.has_prediction_sets:
        raise UserError(
            f"task {model.task.name} predicts output type {output_type.kind_name()}: sets are for "
            f"classes, tags, options and numbers"
        )


def is_number(model: "FineTunedModel") -> bool:
    """Return whether a model predicts numbers, for which sets are intervals."""
    return model.task.output_type.kind_name() == "number"


def class_names(model: "FineTunedModel", parts: Sequence[SequenceOutputs]) -> Sequence[str | int]:
    """Return what the scores of an example's decisions stand for: labels, or numbers of options."""
    return model.task.labels or range(len(parts))


SUMMARY_COVERAGES = (0.8, 0.9, 0.95, 0.99)


def calibration_summary(
    calibration: ConformalCalibration, scores: LabelledScores
) -> dict[str, Any]:
    """Return the mean size of sets, or the width of intervals, for some coverages."""
    size = "widths" if calibration.method == "residual" else "mean_set_sizes"
    possible = [c for c in SUMMARY_COVERAGES if round(c * LEVELS) <= len(calibration.quantiles)]
    return {
        "method": calibration.method,
        "examples": calibration.num_examples,
        size: {f"{c:g}": scores.mean_size(calibration.set_threshold(c)) for c in possible},
    }
