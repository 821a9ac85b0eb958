"""OpenAI's protocol: embeddings and the list of models."""

import base64
import time
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from bertwright.models.text_model import FloatMatrix
from bertwright.serving.api.schemas import ApiRequest, TextList, json_response, l2_normalise
from bertwright.serving.model_worker import ModelWorker
from bertwright.serving.service import get_service
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import ExtractiveQuestion, MultipleChoice, TaggedSentence
from bertwright.tasks.prediction import needs_pairs, needs_single_text
from bertwright.tasks.task import Task

router = APIRouter(prefix="/v1", tags=["OpenAI"])

START_TIME = int(time.time())


class EmbeddingsRequest(ApiRequest):
    """``dimensions`` truncates embeddings, for models trained for that; ``user`` is ignored.

    ``prompt_name`` is the name of a prompt of the model, which is placed before each text.
    """

    input: TextList
    prompt_name: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    user: str | None = None


class Embedding(BaseModel):
    """An embedding: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"] = "embedding"
    embedding: list[float] | str
    index: int


class Usage(BaseModel):
    """Number of tokens, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """The embeddings of all texts, each of length 1."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


InputKind = Literal["text", "pair", "words", "question", "options"]

_INPUT_KINDS: dict[type, tuple[InputKind, ...]] = {
    TaggedSentence: ("words",),
    ExtractiveQuestion: ("question",),
    MultipleChoice: ("options",),
}
"""The inputs of tasks whose examples are neither texts nor pairs of texts."""


class TaskInfo(BaseModel):
    """The output type of a fine-tuned model, its labels, and the kinds of inputs that it takes."""

    output: str
    labels: list[str]
    inputs: list[InputKind]


class ModelInfo(BaseModel):
    """A model, its endpoints, and the task for which it was fine-tuned."""

    id: str
    object: Literal["model"] = "model"
    created: int = START_TIME
    owned_by: str = "bertwright"
    endpoints: list[str]
    task: TaskInfo | None = None


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[ModelInfo]


@router.post("/embeddings", response_model=EmbeddingsResponse)
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    """Return an embedding of length 1 for every text."""
    service = get_service(request)
    worker = service.models.find(body.model, "embed")
    vectors, num_tokens = await service.embed(
        request, worker, body.input, False, body.prompt_name, body.dimensions
    )
    encoded = _ENCODINGS[body.encoding_format](l2_normalise(vectors))
    return json_response(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "embedding": vector, "index": index}
                for index, vector in enumerate(encoded)
            ],
            "model": worker.name,
            "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        }
    )


@router.get("/models")
async def models(request: Request) -> ModelList:
    """List the models."""
    workers = get_service(request).models.workers.values()
    return ModelList(data=[_model_info(worker) for worker in workers])


@router.get("/models/{name}")
async def model(name: str, request: Request) -> ModelInfo:
    """Return one model."""
    return _model_info(get_service(request).models.get(name))


def _model_info(worker: ModelWorker) -> ModelInfo:
    task = _task_info(worker.model.task) if isinstance(worker.model, FineTunedModel) else None
    return ModelInfo(id=worker.name, endpoints=worker.endpoints, task=task)


def _task_info(task: Task) -> TaskInfo:
    texts: list[InputKind] = ["text"] * (not needs_pairs(task))
    pairs: list[InputKind] = ["pair"] * (not needs_single_text(task))
    inputs = _INPUT_KINDS.get(task.output_type.example_type, (*texts, *pairs))
    return TaskInfo(
        output=task.output_type.kind_name(), labels=list(task.labels), inputs=list(inputs)
    )


def _encode_base64(vectors: FloatMatrix) -> list[str]:
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]


_ENCODINGS = {"float": list[FloatMatrix], "base64": _encode_base64}
