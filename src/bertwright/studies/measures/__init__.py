"""Named metrics of a trained arm."""

from bertwright.studies.measures.measure import Measure, Metrics, TrainedArm
from bertwright.studies.measures.tasks import FineTuningMeasure, LinearProbeMeasure
from bertwright.studies.measures.trained_models import (
    ContinuationMeasure,
    CostMeasure,
    HeldOutMeasure,
    MinimalPairMeasure,
    NextItemMeasure,
    continues_correctly,
    fills_correctly,
)

__all__ = [
    "ContinuationMeasure",
    "CostMeasure",
    "FineTuningMeasure",
    "HeldOutMeasure",
    "LinearProbeMeasure",
    "Measure",
    "Metrics",
    "MinimalPairMeasure",
    "NextItemMeasure",
    "TrainedArm",
    "continues_correctly",
    "fills_correctly",
]
