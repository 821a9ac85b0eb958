"""OpenAI's protocol: vectors of texts, and the list of models."""

import base64
import time
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from bertwright.model.text_model import Vectors
from bertwright.serving.desk import desk_of
from bertwright.serving.refusals import Refusal
from bertwright.serving.served import Served
from bertwright.serving.texts import Asked, Texts, as_json, unit

router = APIRouter(prefix="/v1", tags=["OpenAI"])

STARTED = int(time.time())


class EmbeddingsRequest(Asked):
    """``dimensions`` takes the first numbers of a vector, for models that were trained to serve
    with fewer; ``user`` is read by nobody."""

    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None


class Embedding(BaseModel):
    """One vector: numbers, or their 32 bits each, the lowest byte first, in base64."""

    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str
    index: int


class Usage(BaseModel):
    """Tokens that were read, special ones included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """The vectors of all texts, each of length 1."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class ModelAnswer(BaseModel):
    """A model, and what it can be asked for."""

    id: str
    object: Literal["model"] = "model"
    created: int = STARTED
    owned_by: str = "bertwright"
    abilities: list[str]


class ModelsAnswer(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelAnswer]


@router.post("/embeddings", response_model=EmbeddingsAnswer)
async def embeddings(asked: EmbeddingsRequest, request: Request) -> Response:
    """A vector of length 1 for every text."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "embed")
    vectors, num_tokens = await desk.vectors(request, served, asked.input, truncate=False)
    width = vectors.shape[1]
    if asked.dimensions is not None and asked.dimensions > width:
        raise Refusal(422, f"dimensions: a vector of {served.name} has {width}, ask for fewer")
    said = _ENCODINGS[asked.encoding_format](unit(vectors[:, : asked.dimensions]))
    answer = {
        "object": "list",
        "data": [
            {"object": "embedding", "embedding": vector, "index": number}
            for number, vector in enumerate(said)
        ],
        "model": served.name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }
    return as_json(answer)


@router.get("/models")
async def models(request: Request) -> ModelsAnswer:
    """The models that are here."""
    every = desk_of(request).models.all.values()
    return ModelsAnswer(data=[_told(served) for served in every])


@router.get("/models/{name}")
async def model(name: str, request: Request) -> ModelAnswer:
    """One of them."""
    return _told(desk_of(request).models.named(name))


def _told(served: Served) -> ModelAnswer:
    return ModelAnswer(id=served.name, abilities=served.abilities)


def _base64(vectors: Vectors) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]


_ENCODINGS = {"float": list[Vectors], "base64": _base64}
