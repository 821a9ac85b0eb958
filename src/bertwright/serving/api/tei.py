"""The protocol of Text Embeddings Inference: embeddings, classification and ranking."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, FailFast, Field, PlainValidator, WithJsonSchema, model_validator

from bertwright.serving.api.schemas import (
    TEXT_SCHEMA,
    ApiRequest,
    TextList,
    json_response,
    l2_normalise,
    require_encodable,
)
from bertwright.serving.errors import ApiError
from bertwright.serving.model_worker import ModelWorker
from bertwright.serving.service import get_service
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs import FloatArray, Prediction, RelevanceOutput
from bertwright.tasks.outputs.windows import WindowedOutput
from bertwright.tasks.prediction import needs_pairs, needs_single_text
from bertwright.tasks.task import Task

router = APIRouter(tags=["Text Embeddings Inference"])

_TEXT_PAIR_SCHEMA = {"type": "array", "items": TEXT_SCHEMA, "minItems": 1, "maxItems": 2}


@dataclass(frozen=True)
class PredictInputs:
    """Texts and pairs of texts; ``is_single`` if the request was not a list."""

    texts: list[list[str]]
    is_single: bool


def _parse_inputs(value: Any) -> PredictInputs:
    is_single = isinstance(value, str) or _is_text_or_pair(value)
    texts = [[value]] if isinstance(value, str) else [value] if is_single else value
    if not isinstance(texts, list) or not texts or not all(map(_is_text_or_pair, texts)):
        raise ValueError("must be a text, a pair of texts, or a list of lists of one or two texts")
    return PredictInputs(texts, is_single)


def _is_text_or_pair(value: Any) -> bool:
    """Return whether a value is a list of one or two texts."""
    return (
        isinstance(value, list)
        and 1 <= len(value) <= 2
        and all(isinstance(text, str) for text in value)
    )


class TruncatedRequest(ApiRequest):
    """``truncate`` shortens long texts from the end; without it they are an error."""

    truncate: bool = False
    truncation_direction: Literal["right", "Right"] = "right"


class EmbedRequest(TruncatedRequest):
    """``normalize`` scales embeddings to length 1.

    ``prompt_name`` is the name of a prompt of the model, which is placed before each text;
    ``dimensions`` truncates embeddings, for models trained for that.
    """

    inputs: TextList
    normalize: bool = True
    prompt_name: str | None = None
    dimensions: int | None = Field(default=None, ge=1)


class TextPairsRequest(TruncatedRequest):
    """``inputs`` is a text, a pair [text, text], or a list of [text] and [text, text]."""

    inputs: Annotated[
        PredictInputs,
        PlainValidator(_parse_inputs),
        WithJsonSchema(
            {
                "anyOf": [
                    TEXT_SCHEMA,
                    _TEXT_PAIR_SCHEMA,
                    {"type": "array", "items": _TEXT_PAIR_SCHEMA},
                ]
            }
        ),
    ]


class PredictRequest(TextPairsRequest):
    """``raw_scores`` returns logits instead of probabilities."""

    raw_scores: bool = False


class RerankRequest(TruncatedRequest):
    """``return_text`` also returns the texts."""

    query: str
    texts: Annotated[list[str], FailFast(), Field(min_length=1)]
    raw_scores: bool = False
    return_text: bool = False

    @model_validator(mode="after")
    def _require_encodable(self) -> Self:
        for text in self.texts if self.return_text else ():
            require_encodable(text)
        return self


class Score(BaseModel):
    """A label and its probability; for regression, the output type and the number."""

    label: str
    score: float


class Rank(BaseModel):
    """The index of a text and its relevance."""

    index: int
    score: float
    text: str | None = None


@router.post("/", response_model=list[list[float]], include_in_schema=False)
@router.post("/embed", response_model=list[list[float]])
async def embed(body: EmbedRequest, request: Request) -> Response:
    """Return an embedding for every text."""
    service = get_service(request)
    worker = service.models.find(body.model, "embed")
    vectors, _ = await service.embed(
        request, worker, body.inputs, body.truncate, body.prompt_name, body.dimensions
    )
    if body.normalize:
        vectors = l2_normalise(vectors)
    return json_response(vectors)


@router.post("/predict")
async def predict(body: PredictRequest, request: Request) -> list[Score] | list[list[Score]]:
    """Return the labels of every text or pair, most probable first, or its number."""
    service = get_service(request)
    worker = service.models.find(body.model, "predict")
    task, examples = cast(FineTunedModel, worker.model).task, read_examples(worker, body.inputs)
    predictions, outputs = await service.predict(request, worker, examples, body.truncate)
    scores = [
        _scores(task, prediction, output, body.raw_scores)
        for prediction, output in zip(predictions, outputs, strict=True)
    ]
    return scores[0] if body.inputs.is_single else scores


@router.post("/rerank", response_model_exclude_none=True)
async def rerank(body: RerankRequest, request: Request) -> list[Rank]:
    """Return the texts sorted by their relevance to the query."""
    service = get_service(request)
    worker = service.models.find(body.model, "rerank")
    task = cast(FineTunedModel, worker.model).task
    examples = [Example(body.query, text) for text in body.texts]
    predictions, outputs = await service.predict(request, worker, examples, body.truncate)
    ranks = [
        Rank(
            index=index,
            score=_scores(task, prediction, output, body.raw_scores)[0].score,
            text=body.texts[index] if body.return_text else None,
        )
        for index, (prediction, output) in enumerate(zip(predictions, outputs, strict=True))
    ]
    return sorted(ranks, key=lambda rank: -rank.score)


def read_examples(worker: ModelWorker, inputs: PredictInputs) -> list[Example]:
    """Return the examples of a request; ApiError for pairs or single texts that do not fit."""
    task = cast(FineTunedModel, worker.model).task
    if needs_pairs(task) and any(len(texts) < 2 for texts in inputs.texts):
        raise ApiError(422, f"inputs: {worker.name} needs pairs: send [text, text] for each")
    if needs_single_text(task) and any(len(texts) > 1 for texts in inputs.texts):
        raise ApiError(
            422, f"inputs: {worker.name} takes no pairs: send [[text], [text]] for two texts"
        )
    return [Example(texts[0], texts[1] if len(texts) > 1 else None) for texts in inputs.texts]


def _scores(
    task: Task, prediction: Prediction, outputs: FloatArray, raw_scores: bool
) -> list[Score]:
    """Return the scores of one example; ``outputs`` (windows, K) are its head outputs."""
    if isinstance(prediction.probabilities, dict):
        scores = prediction.probabilities
        if raw_scores:
            scores = dict(zip(task.labels, _pool_logits(task, outputs), strict=True))
    elif raw_scores and isinstance(task.output_type, RelevanceOutput):
        scores = {task.output_type.kind_name(): _pool_logits(task, outputs)[0]}
    else:
        scores = {task.output_type.kind_name(): float(cast(float, prediction.value))}
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    return [Score(label=label, score=score) for label, score in ranked]


def _pool_logits(task: Task, outputs: FloatArray) -> list[float]:
    """Return the logits of a text, given those of its windows (windows, K)."""
    assert isinstance(task.output_type, WindowedOutput)
    return task.output_type.pool_windows(outputs).mean(0).tolist()
