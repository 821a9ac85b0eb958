"""What can be asked: /openapi.json for programs, and a page for people that reads it.

The page is ours: what describes a server must not send its visitors to another one.
"""

from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from bertwright.serving.door import OPEN, WATCHING
from bertwright.serving.refusals import OPENAI, OpenAIRefused, Refused

PAGE = resources.files("bertwright.serving").joinpath("docs.html").read_text(encoding="utf-8")

OF_ANY = {
    401: "Keys are asked for, and none of them is shown.",
    429: "Too much is being answered: Retry-After says when to come again.",
    500: "A mistake of the server; the sentence has a number that is in its log.",
    503: "The server is stopping.",
}
"""Why a request of any kind is refused, by status."""

OF_A_BODY = {
    400: "The body is no JSON, or asks what the model that it names cannot.",
    404: "There is no such model, or none that can answer this.",
    408: "The body did not arrive in time.",
    413: "Too many bytes, texts or tokens.",
    422: "The body is not what is asked for; the sentence names the field.",
    504: "No answer in time.",
}
"""Why a request with a body is refused."""


def describe(app: FastAPI) -> None:
    """Have an application say of its endpoints what they take, give, and refuse."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, routes=app.routes)
            app.openapi_schema = _with_refusals(found)
        return app.openapi_schema

    async def docs() -> HTMLResponse:
        return HTMLResponse(PAGE)

    app.openapi = described
    app.add_api_route("/docs", docs, include_in_schema=False)


def _with_refusals(described: dict[str, Any]) -> dict[str, Any]:
    """Refusals are made at the door, outside of the framework, which knows nothing of them."""
    schemas = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for kind in (Refused, OpenAIRefused):
        own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= own.pop("$defs", {})
        schemas[kind.__name__] = own
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            body = OpenAIRefused if path.startswith(OPENAI) else Refused
            own = {str(status): _refusal(why, body) for status, why in _why(path, method).items()}
            known = {
                status: said for status, said in operation["responses"].items() if status == "200"
            }
            operation["responses"] = {**known, **own}
    return described


def _why(path: str, method: str) -> Mapping[int, str]:
    """Why a request of a path is refused."""
    found = OF_ANY | (OF_A_BODY if method == "post" else {})
    if "{" in path:
        found[404] = OF_A_BODY[404]
    unasked = (401,) * (path in OPEN) + (429,) * (path in WATCHING)
    return {status: found[status] for status in sorted(found) if status not in unasked}


def _refusal(why: str, body: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{body.__name__}"}
    return {"description": why, "content": {"application/json": {"schema": schema}}}
