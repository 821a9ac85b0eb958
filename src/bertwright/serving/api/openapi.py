"""The API description, /openapi.json, with all error responses."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from bertwright.serving.errors import OPENAI_PREFIX, ApiErrorBody, OpenAIErrorBody
from bertwright.serving.middleware import MONITORING_PATHS, PUBLIC_PATHS

COMMON_ERRORS = {
    401: "An API key is required; it is missing or wrong.",
    429: "The server is overloaded: retry after the time in Retry-After.",
    500: "Internal error; the message has an id that is in the server log.",
    503: "The server is shutting down.",
}
"""Error descriptions of all endpoints, by status."""

BODY_ERRORS = {
    400: "The body is not JSON, or the named model does not support the endpoint.",
    404: "The model or index does not exist, or no model supports the endpoint.",
    408: "The body did not arrive in time.",
    413: "Too many bytes, texts or tokens.",
    422: "The body is invalid; the message names the field.",
    504: "The request timed out.",
}
"""Error descriptions of endpoints with a body, by status."""


def install_openapi(app: FastAPI) -> None:
    """Add /openapi.json with all error responses."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
            app.openapi_schema = _add_error_responses(schema)
        return app.openapi_schema

    app.openapi = openapi


def _add_error_responses(schema: dict[str, Any]) -> dict[str, Any]:
    """Add the errors of the middleware, which FastAPI does not know."""
    schemas = schema["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for model in (ApiErrorBody, OpenAIErrorBody):
        error_schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= error_schema.pop("$defs", {})
        schemas[model.__name__] = error_schema
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            body = OpenAIErrorBody if path.startswith(OPENAI_PREFIX) else ApiErrorBody
            errors = {
                str(status): _error_response(description, body)
                for status, description in _error_descriptions(path, method).items()
            }
            responses = operation["responses"]
            success = {status: responses[status] for status in responses if status == "200"}
            operation["responses"] = {**success, **errors}
    return schema


def _error_descriptions(path: str, method: str) -> Mapping[int, str]:
    """Return the descriptions of the errors of an endpoint, by status."""
    errors = COMMON_ERRORS | (BODY_ERRORS if method == "post" else {})
    if "{" in path:
        errors[404] = BODY_ERRORS[404]
    excluded = (401,) * (path in PUBLIC_PATHS) + (429,) * (path in MONITORING_PATHS)
    return {status: errors[status] for status in sorted(errors) if status not in excluded}


def _error_response(description: str, model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
