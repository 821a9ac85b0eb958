"""Predictions with sets of guaranteed coverage, and abstention."""

from typing import cast

from fastapi import APIRouter, Request
from pydantic import BaseModel

from bertwright.serving.api.tei import TextPairsRequest, read_examples
from bertwright.serving.model_worker import ModelWorker
from bertwright.serving.service import get_service
from bertwright.tasks.conformal.predictor import ConformalPredictor
from bertwright.tasks.fine_tuned_model import FineTunedModel

router = APIRouter(tags=["bertwright"])


class ClassifyRequest(TextPairsRequest):
    """``coverage`` and ``abstain_above`` are as in ``bertwright predict``.

    With a ``coverage``, such as 0.9, a prediction has the set of classes, or the interval, that
    holds the correct one with this probability. With ``abstain_above``, a risk such as 0.05, it
    says whether to withhold it, so that at most this fraction of the others is wrong.
    """

    coverage: float | None = None
    abstain_above: float | None = None


class ClassifyResult(BaseModel):
    """A prediction, the probabilities of all classes, and what is guaranteed."""

    prediction: str | float
    probabilities: dict[str, float] | None = None
    set: list[str] | None = None
    interval: tuple[float, float] | None = None
    abstains: bool | None = None


@router.post("/classify", response_model_exclude_none=True)
async def classify(
    body: ClassifyRequest, request: Request
) -> ClassifyResult | list[ClassifyResult]:
    """Return the prediction of a calibrated model for every text or pair, with guarantees."""
    service = get_service(request)
    worker = service.models.find(body.model, "classify")
    examples = read_examples(worker, body.inputs)
    predictor = conformal_predictor(worker, body.coverage, body.abstain_above)
    predictions, _ = await service.predict(request, worker, examples, body.truncate, predictor)
    results = [ClassifyResult.model_validate(p.as_dict()) for p in predictions]
    return results[0] if body.inputs.is_single else results


def conformal_predictor(
    worker: ModelWorker, coverage: float | None, max_risk: float | None
) -> ConformalPredictor | None:
    """Return the predictor that gives guarantees; None if none are requested.

    Errors: UserError for guarantees that the calibration of the model does not give.
    """
    if coverage is None and max_risk is None:
        return None
    return ConformalPredictor(cast(FineTunedModel, worker.model), coverage, max_risk)
