"""Error responses: a single sentence, in the format of each protocol."""

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from bertwright.core.config import error_message
from bertwright.data.tokenization.characters import replace_lone_surrogates

MAX_MESSAGE_LENGTH = 300
"""Maximum number of characters in a message, which may quote the request."""

OPENAI_PREFIX = "/v1/"
"""Path prefix of the OpenAI protocol."""

_FRAMEWORK_MESSAGES = {
    400: "the body cannot be read: send a JSON object",
    404: "there is no such path: see /docs for the endpoints",
    405: "the method is not allowed: see /docs for the endpoints",
}
"""Messages for errors raised by the framework."""

_ERROR_TYPES = {
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


class ApiErrorBody(BaseModel):
    """The body of an error response."""

    error: str
    error_type: str


class OpenAIError(BaseModel):
    """The error message and the HTTP status."""

    message: str
    type: str
    param: None
    code: int


class OpenAIErrorBody(BaseModel):
    """The body of an error response in the OpenAI protocol."""

    error: OpenAIError


class ApiError(HTTPException):
    """An error response; ``retry_seconds`` sets the Retry-After header."""

    def __init__(self, status: int, message: str, retry_seconds: int | None = None) -> None:
        headers = {} if retry_seconds is None else {"Retry-After": str(retry_seconds)}
        if status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        super().__init__(status, message, headers)


def shutdown_error() -> ApiError:
    """Return the error of a server that is shutting down."""
    return ApiError(503, "the server is shutting down: use another one", 1)


def disconnect_error() -> ApiError:
    """Return the error for a client that disconnected, which only appears in metrics."""
    return ApiError(499, "the client disconnected")


def error_response(path: str, http_error: HTTPException) -> JSONResponse:
    """Return the response for an error, in the format of the path's protocol."""
    message, status = str(http_error.detail), http_error.status_code
    if not isinstance(http_error, ApiError):
        message = _FRAMEWORK_MESSAGES.get(status, message)
    # Truncate first: the message may quote a whole body, and this blocks the event loop.
    message = replace_lone_surrogates(message[: 2 * MAX_MESSAGE_LENGTH])
    message = shorten(message, MAX_MESSAGE_LENGTH, placeholder=" ...")
    error_type = _ERROR_TYPES.get(status, "error")
    if path.startswith(OPENAI_PREFIX):
        error = OpenAIError(message=message, type=error_type, param=None, code=status)
        content: BaseModel = OpenAIErrorBody(error=error)
    else:
        content = ApiErrorBody(error=message, error_type=error_type)
    return JSONResponse(content.model_dump(), status, headers=http_error.headers)


def validation_error(errors: Sequence[Any]) -> ApiError:
    """Return the error for the first of several pydantic validation errors."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not JSON: {first['ctx']['error']}")
    location = first["loc"][1:]
    if not location and first["type"] != "value_error":
        return ApiError(422, "the body must be a JSON object, with Content-Type: application/json")
    return ApiError(422, error_message({**first, "loc": location}, ""))
