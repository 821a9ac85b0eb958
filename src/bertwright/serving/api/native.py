"""Endpoints without a standard protocol: masks, tags, answers to questions, generated text."""

from typing import Annotated, Self, cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, FailFast, Field, model_validator

from bertwright.core.config import Settings
from bertwright.core.messages import count_noun
from bertwright.serving.api.guarantees import conformal_predictor
from bertwright.serving.api.schemas import ApiRequest, EchoedText, EchoedTexts, TextList
from bertwright.serving.service import get_service
from bertwright.tasks.formats.examples import Example, ExtractiveQuestion, TaggedSentence

router = APIRouter(tags=["bertwright"])


class FillMaskRequest(ApiRequest):
    """``inputs`` are texts with [MASK]; ``top_k`` is the number of predictions per mask."""

    inputs: TextList
    top_k: int = Field(default=5, ge=1, le=100)


class TagRequest(ApiRequest):
    """``inputs`` are sentences of words separated by white space.

    With a ``coverage``, every word has the set of tags that holds its tag with this probability.
    """

    inputs: EchoedTexts
    coverage: float | None = None


class QuestionInput(Settings):
    """A question, and the text that contains the answer."""

    question: str
    text: EchoedText


class AnswerRequest(ApiRequest):
    """``inputs`` are questions with their texts; ``truncate`` shortens long questions."""

    inputs: Annotated[list[QuestionInput], FailFast(), Field(min_length=1)]
    truncate: bool = False


class GenerateRequest(ApiRequest):
    """``inputs`` are texts; ``pairs`` are their second texts; ``truncate`` shortens long ones."""

    inputs: TextList
    pairs: Annotated[list[str], FailFast()] = Field(default_factory=list[str])
    truncate: bool = False

    @model_validator(mode="after")
    def _as_many_pairs(self) -> Self:
        if self.pairs and len(self.pairs) != len(self.inputs):
            inputs, pairs = len(self.inputs), len(self.pairs)
            raise ValueError(f"holds {count_noun(inputs, 'input')} and {count_noun(pairs, 'pair')}")
        return self


class GenerateResult(BaseModel):
    """A generated text, class or number, and the probability of the text."""

    prediction: str | float
    probability: float


class FillMaskResult(BaseModel):
    """A predicted token and its probability."""

    token: str
    probability: float


class TagResult(BaseModel):
    """A word, its tag and the probability; with a coverage also its set of tags."""

    word: str
    tag: str
    probability: float
    set: tuple[str, ...] | None = None


class AnswerResult(BaseModel):
    """A span of the text, empty without an answer, its first character and its probability."""

    answer: str
    start: int | None
    probability: float


@router.post("/fill-mask")
async def fill_mask(body: FillMaskRequest, request: Request) -> list[list[list[FillMaskResult]]]:
    """Return the most probable tokens for every mask of every text."""
    service = get_service(request)
    worker = service.models.find(body.model, "fill-mask")
    predictions = await service.fill_mask(request, worker, body.inputs, body.top_k)
    return [
        [[FillMaskResult(token=p.token, probability=p.probability) for p in mask] for mask in text]
        for text in predictions
    ]


@router.post("/tag", response_model_exclude_none=True)
async def tag(body: TagRequest, request: Request) -> list[list[TagResult]]:
    """Return the tag of every word of every sentence."""
    service = get_service(request)
    worker = service.models.find(body.model, "tag")
    sentences = [TaggedSentence(tuple(text.split())) for text in body.inputs]
    predictor = conformal_predictor(worker, body.coverage, None)
    predictions, _ = await service.predict(request, worker, sentences, False, predictor)
    return [
        [
            TagResult(word=word, tag=tag, probability=probability, set=tags)
            for word, tag, probability, tags in zip(
                sentence.words,
                cast(tuple[str, ...], prediction.value),
                cast(tuple[float, ...], prediction.probabilities),
                cast("tuple[tuple[str, ...], ...] | None", prediction.sets)
                or [None] * len(sentence.words),
                strict=True,
            )
        ]
        for sentence, prediction in zip(sentences, predictions, strict=True)
    ]


@router.post("/answer")
async def answer(body: AnswerRequest, request: Request) -> list[AnswerResult]:
    """Return the span of the text that answers each question."""
    service = get_service(request)
    worker = service.models.find(body.model, "answer")
    questions = [ExtractiveQuestion(item.question, item.text) for item in body.inputs]
    predictions, _ = await service.predict(request, worker, questions, body.truncate)
    return [
        AnswerResult(
            answer=cast(str, p.value), start=p.start, probability=cast(float, p.probabilities)
        )
        for p in predictions
    ]


@router.post("/generate")
async def generate(body: GenerateRequest, request: Request) -> list[GenerateResult]:
    """Return the text that the model generates for each input."""
    service = get_service(request)
    worker = service.models.find(body.model, "generate")
    pairs = body.pairs or [None] * len(body.inputs)
    examples = [Example(text, pair) for text, pair in zip(body.inputs, pairs, strict=True)]
    predictions = await service.generate(request, worker, examples, body.truncate)
    return [
        GenerateResult(
            prediction=cast(str | float, p.value), probability=cast(float, p.probabilities)
        )
        for p in predictions
    ]
