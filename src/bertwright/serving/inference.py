"""The protocol of Text Embeddings Inference: vectors, classes and numbers, rankings."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, FailFast, Field, PlainValidator, WithJsonSchema, model_validator

from bertwright.serving.desk import desk_of
from bertwright.serving.refusals import Refusal
from bertwright.serving.texts import TEXT, Asked, Texts, as_json, unit, writable
from bertwright.tasks.answers import Floats, Prediction, RelevanceAnswer
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.prediction import asks_pairs, asks_single
from bertwright.tasks.task import Task

router = APIRouter(tags=["Text Embeddings Inference"])

_TEXTS = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2}


@dataclass(frozen=True)
class Inputs:
    """Texts and pairs of texts; ``alone`` where it was one, and no list of them."""

    texts: list[list[str]]
    alone: bool


def _inputs(given: Any) -> Inputs:
    alone = isinstance(given, str) or _is_example(given)
    texts = [[given]] if isinstance(given, str) else [given] if alone else given
    if not isinstance(texts, list) or not texts or not all(map(_is_example, texts)):
        raise ValueError("must be a text, a pair of texts, or a list of lists of one or two texts")
    return Inputs(texts, alone)


def _is_example(given: Any) -> bool:
    """Whether this is one text, or a pair, in a list."""
    few = isinstance(given, list) and 1 <= len(given) <= 2
    return few and all(isinstance(text, str) for text in given)


class Cutting(Asked):
    """``truncate`` cuts a text that is too long, from its end; else that is refused."""

    truncate: bool = False
    truncation_direction: Literal["right", "Right"] = "right"


class EmbedRequest(Cutting):
    """``normalize`` scales vectors to length 1."""

    inputs: Texts
    normalize: bool = True


class PredictRequest(Cutting):
    """``inputs`` is a text, a pair [text, text], or a list of [text] and [text, text];
    ``raw_scores`` asks for what the model says before it becomes a probability."""

    inputs: Annotated[
        Inputs,
        PlainValidator(_inputs),
        WithJsonSchema({"anyOf": [TEXT, _TEXTS, {"type": "array", "items": _TEXTS}]}),
    ]
    raw_scores: bool = False


class RerankRequest(Cutting):
    """``return_text`` says every text again, beside its score."""

    query: str
    texts: Annotated[list[str], FailFast(), Field(min_length=1)]
    raw_scores: bool = False
    return_text: bool = False

    @model_validator(mode="after")
    def _require_writable(self) -> Self:
        for text in self.texts if self.return_text else ():
            writable(text)
        return self


class Score(BaseModel):
    """A label, and how probable it is; or the kind of a number, and the number."""

    label: str
    score: float


class Rank(BaseModel):
    """A text by its index, and how relevant it is."""

    index: int
    score: float
    text: str | None = None


@router.post("/", response_model=list[list[float]], include_in_schema=False)
@router.post("/embed", response_model=list[list[float]])
async def embed(asked: EmbedRequest, request: Request) -> Response:
    """A vector for every text."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "embed")
    vectors, _ = await desk.vectors(request, served, asked.inputs, asked.truncate)
    if asked.normalize:
        vectors = unit(vectors)
    return as_json(vectors)


@router.post("/predict")
async def predict(asked: PredictRequest, request: Request) -> list[Score] | list[list[Score]]:
    """Of every text or pair the labels, the likeliest first, or its number."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "predict")
    task = cast(FineTuned, served.model).task
    if asks_pairs(task) and any(len(texts) < 2 for texts in asked.inputs.texts):
        raise Refusal(422, f"inputs: {served.name} asks for pairs: write [text, text] for each")
    if asks_single(task) and any(len(texts) > 1 for texts in asked.inputs.texts):
        raise Refusal(
            422, f"inputs: {served.name} asks for no pairs: write [[text], [text]] for two texts"
        )
    examples = [Example(own[0], own[1] if len(own) > 1 else None) for own in asked.inputs.texts]
    said, outputs = await desk.predictions(request, served, examples, asked.truncate)
    scores = [
        _scores(task, one, output, asked.raw_scores)
        for one, output in zip(said, outputs, strict=True)
    ]
    return scores[0] if asked.inputs.alone else scores


@router.post("/rerank", response_model_exclude_none=True)
async def rerank(asked: RerankRequest, request: Request) -> list[Rank]:
    """The texts in the order of their relevance to the query."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "rerank")
    task = cast(FineTuned, served.model).task
    examples = [Example(asked.query, text) for text in asked.texts]
    said, outputs = await desk.predictions(request, served, examples, asked.truncate)
    ranks = [
        Rank(
            index=number,
            score=_scores(task, one, output, asked.raw_scores)[0].score,
            text=asked.texts[number] if asked.return_text else None,
        )
        for number, (one, output) in enumerate(zip(said, outputs, strict=True))
    ]
    return sorted(ranks, key=lambda rank: -rank.score)


def _scores(task: Task, said: Prediction, outputs: Floats, raw: bool) -> list[Score]:
    """What is said of one example; ``outputs`` (windows, K) is what it comes from."""
    if isinstance(said.probabilities, dict):
        named = said.probabilities
        if raw:
            named = dict(zip(task.labels, outputs.mean(0).tolist(), strict=True))
    elif raw and isinstance(task.answer, RelevanceAnswer):
        named = {task.answer.name: float(outputs[0, 0])}
    else:
        named = {task.answer.name: float(cast(float, said.answer))}
    best = sorted(named.items(), key=lambda each: -each[1])
    return [Score(label=label, score=score) for label, score in best]
