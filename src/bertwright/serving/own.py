"""What other protocols have no words for: hidden places, tags of words, answers to questions."""

from typing import Annotated, cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, FailFast, Field

from bertwright.axes import Settings
from bertwright.serving.desk import desk_of
from bertwright.serving.texts import Asked, Repeated, RepeatedTexts, Texts
from bertwright.tasks.formats.examples import Question, TaggedWords

router = APIRouter(tags=["bertwright"])


class FillMaskRequest(Asked):
    """``inputs`` are texts with [MASK] wherever a piece is asked; ``top_k`` pieces are named."""

    inputs: Texts
    top_k: int = Field(default=5, ge=1, le=100)


class TagRequest(Asked):
    """``inputs`` are sentences, their words set apart by white space."""

    inputs: RepeatedTexts


class QuestionAsked(Settings):
    """A question, and the text that answers it."""

    question: str
    text: Repeated


class AnswerRequest(Asked):
    """``inputs`` are questions, each with its text; ``truncate`` cuts a question that is too
    long."""

    inputs: Annotated[list[QuestionAsked], FailFast(), Field(min_length=1)]
    truncate: bool = False


class GuessSaid(BaseModel):
    """A piece, and how probable it is."""

    piece: str
    probability: float


class TagSaid(BaseModel):
    """A word, its tag, and how probable that is."""

    word: str
    tag: str
    probability: float


class AnswerSaid(BaseModel):
    """A part of the text, or nothing, and how probable it is."""

    answer: str
    probability: float


@router.post("/fill-mask")
async def fill_mask(asked: FillMaskRequest, request: Request) -> list[list[list[GuessSaid]]]:
    """For every text, for every hidden place, the likeliest pieces."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "fill-mask")
    found = await desk.guesses(request, served, asked.inputs, asked.top_k)
    return [
        [[GuessSaid(piece=g.piece, probability=g.probability) for g in place] for place in text]
        for text in found
    ]


@router.post("/tag")
async def tag(asked: TagRequest, request: Request) -> list[list[TagSaid]]:
    """For every sentence the tags of its words."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "tag")
    sentences = [TaggedWords(tuple(text.split())) for text in asked.inputs]
    found, _ = await desk.predictions(request, served, sentences, truncate=False)
    return [
        [
            TagSaid(word=word, tag=said, probability=sure)
            for word, said, sure in zip(
                sentence.words,
                cast(tuple[str, ...], prediction.answer),
                cast(tuple[float, ...], prediction.probabilities),
                strict=True,
            )
        ]
        for sentence, prediction in zip(sentences, found, strict=True)
    ]


@router.post("/answer")
async def answer(asked: AnswerRequest, request: Request) -> list[AnswerSaid]:
    """For every question the part of its text that answers it."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "answer")
    questions = [Question(each.question, each.text) for each in asked.inputs]
    found, _ = await desk.predictions(request, served, questions, asked.truncate)
    return [
        AnswerSaid(answer=cast(str, p.answer), probability=cast(float, p.probabilities))
        for p in found
    ]
