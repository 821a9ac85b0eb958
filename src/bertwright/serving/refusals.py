"""What is said to a request that is not answered: one sentence, in the words of its protocol."""

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from bertwright.axes import sentence_of
from bertwright.text.characters import healed

LONGEST = 300
"""Characters of a sentence: it may quote what was asked."""

OPENAI = "/v1/"
"""How the paths of OpenAI's protocol begin."""

_OF_FRAMEWORK = {
    400: "the body cannot be read: send a JSON object",
    404: "there is nothing here: /docs says what can be asked",
    405: "this is not how it is asked: /docs says how",
}
"""What the framework says in fewer words."""

_KINDS = {
    400: "validation",
    401: "unauthorised",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "validation",
    429: "overloaded",
    503: "unavailable",
    504: "timeout",
}


class Refused(BaseModel):
    """The body of a refusal."""

    error: str
    error_type: str


class OpenAIError(BaseModel):
    """What is wrong, and the status once more."""

    message: str
    type: str
    param: None
    code: int


class OpenAIRefused(BaseModel):
    """The body of a refusal, as OpenAI's clients read it."""

    error: OpenAIError


class Refusal(HTTPException):
    """A request that is not answered, and why; ``retry_seconds`` is when to come again."""

    def __init__(self, status: int, sentence: str, retry_seconds: int | None = None) -> None:
        headers = {} if retry_seconds is None else {"Retry-After": str(retry_seconds)}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, sentence, headers)


def stopping() -> Refusal:
    """Where nothing is taken any more."""
    return Refusal(503, "the server is stopping: ask another", 1)


def client_left() -> Refusal:
    """What servers write down where nobody is there to be answered."""
    return Refusal(499, "the client left")


def refused(path: str, refusal: HTTPException) -> JSONResponse:
    """The answer to a request of a path: OpenAI's clients look for a message in an object, those of
    Text Embeddings Inference for a text."""
    said = str(refusal.detail)
    if not isinstance(refusal, Refusal):
        said = _OF_FRAMEWORK.get(refusal.status_code, said)
    # Cut first: it may quote a whole body, and meanwhile nothing is answered.
    sentence = shorten(healed(said[: 2 * LONGEST]), LONGEST, placeholder=" ...")
    kind = _KINDS.get(refusal.status_code, "error")
    if path.startswith(OPENAI):
        error = OpenAIError(message=sentence, type=kind, param=None, code=refusal.status_code)
        content: BaseModel = OpenAIRefused(error=error)
    else:
        content = Refused(error=sentence, error_type=kind)
    return JSONResponse(content.model_dump(), refusal.status_code, headers=refusal.headers)


def misread(errors: Sequence[Any]) -> Refusal:
    """The refusal of a body in which the checks of pydantic found these errors."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {first['ctx']['error']}")
    place = first["loc"][1:]
    if not place and first["type"] != "value_error":
        return Refusal(422, "the body must be a JSON object, with Content-Type: application/json")
    return Refusal(422, sentence_of({**first, "loc": place}, ""))
