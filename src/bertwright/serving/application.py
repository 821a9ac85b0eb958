"""The application: models behind endpoints."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from bertwright import __version__
from bertwright.errors import TokenizerFailure, UserError
from bertwright.model.text_model import TextModel
from bertwright.serving import explorer, inference, openai, own
from bertwright.serving.description import describe
from bertwright.serving.desk import Desk
from bertwright.serving.door import Door, Gate
from bertwright.serving.metrics import Metrics
from bertwright.serving.refusals import Refusal, misread, refused
from bertwright.serving.served import Models
from bertwright.serving.settings import Settings


def application(models: Mapping[str, TextModel], settings: Settings | None = None) -> FastAPI:
    """An ASGI application that answers with these models, by their names.

    ``application.state.gate`` closes it for new requests. Errors: UserError without a model.
    """
    settings, metrics = settings or Settings(), Metrics()
    gate, served = Gate(settings.num_requests), Models(models, settings, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await asyncio.to_thread(served.close)

    app = FastAPI(
        title="bertwright", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.desk, app.state.gate, app.state.metrics = Desk(served, settings), gate, metrics
    app.add_middleware(Door, gate=gate, settings=settings, metrics=metrics)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    for room in (openai, inference, own, explorer):
        app.include_router(room.router)
    app.add_api_route("/health", health, tags=["operation"])
    app.add_api_route("/metrics", counts, tags=["operation"], response_class=Response)
    describe(app)
    return app


async def health() -> dict[str, str]:
    """Whether requests are taken."""
    return {"status": "ok"}


async def counts(request: Request) -> Response:
    """Requests, times, queues and batches, for Prometheus."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _refused(request: Request, error: Any) -> Response:
    return refused(request.url.path, error)


async def _misread(request: Request, error: Any) -> Response:
    return refused(request.url.path, misread(error.errors()))


async def _mistaken(request: Request, error: Any) -> Response:
    return refused(request.url.path, Refusal(400, str(error)))


async def _unreadable(request: Request, error: Any) -> Response:
    return refused(request.url.path, Refusal(422, str(error)))


_HANDLERS = {
    HTTPException: _refused,
    RequestValidationError: _misread,
    UserError: _mistaken,
    TokenizerFailure: _unreadable,
}
"""What becomes of a request that cannot be answered."""
