"""Named metrics of a trained arm."""

from bertwright.studies.measures.measure import Measure, Metrics, TrainedArm
from bertwright.studies.measures.tasks import FineTuningMeasure, LinearProbeMeasure
from bertwright.studies.measures.trained_models import (
    ContinuationMeasure,
    ContinuationTokenMeasure,
    CostMeasure,
    HeldOutMeasure,
    MinimalPairMeasure,
    NextItemMeasure,
    continuation_accuracies,
    fills_correctly,
)

__all__ = [
    "ContinuationMeasure",
    "ContinuationTokenMeasure",
    "CostMeasure",
    "FineTuningMeasure",
    "HeldOutMeasure",
    "LinearProbeMeasure",
    "Measure",
    "Metrics",
    "MinimalPairMeasure",
    "NextItemMeasure",
    "TrainedArm",
    "continuation_accuracies",
    "fills_correctly",
]
