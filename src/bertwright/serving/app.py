"""The ASGI application."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from bertwright import __version__
from bertwright.core.errors import TokenizerError, UserError
from bertwright.models.text_model import TextModel
from bertwright.serving.api import explorer, guarantees, native, openai, pages, search, tei
from bertwright.serving.api.openapi import install_openapi
from bertwright.serving.errors import ApiError, error_response, validation_error
from bertwright.serving.metrics import Metrics
from bertwright.serving.middleware import AdmissionControl, ServingMiddleware
from bertwright.serving.model_worker import ModelRegistry
from bertwright.serving.search_service import SearchService, ServedIndex
from bertwright.serving.service import InferenceService
from bertwright.serving.settings import ServingSettings


def create_app(
    models: Mapping[str, TextModel],
    settings: ServingSettings | None = None,
    indexes: Mapping[str, ServedIndex] | None = None,
) -> FastAPI:
    """Create the application for models and search indexes by name.

    ``app.state.admission`` can be closed to reject new requests. Errors: UserError if there is
    neither a model nor an index.
    """
    if not models and not indexes:
        raise UserError("nothing to serve: name a model folder, or an index with --index")
    settings, metrics = settings or ServingSettings(), Metrics()
    admission = AdmissionControl(settings.max_requests)
    registry = ModelRegistry(models, settings, metrics)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await asyncio.to_thread(registry.close)
        await asyncio.to_thread(app.state.search.close)

    app = FastAPI(
        title="bertwright", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service = InferenceService(registry, settings)
    app.state.search = SearchService(indexes or {}, app.state.service)
    app.state.admission, app.state.metrics = admission, metrics
    app.add_middleware(ServingMiddleware, admission=admission, settings=settings, metrics=metrics)
    for error_type, handler in _EXCEPTION_HANDLERS.items():
        app.add_exception_handler(error_type, handler)
    for module in (openai, tei, guarantees, native, search, explorer, pages):
        app.include_router(module.router)
    app.add_api_route("/health", health, tags=["operation"])
    app.add_api_route("/metrics", prometheus_metrics, tags=["operation"], response_class=Response)
    install_openapi(app)
    return app


async def health() -> dict[str, str]:
    """Report that the server accepts requests."""
    return {"status": "ok"}


async def prometheus_metrics(request: Request) -> Response:
    """Return the Prometheus metrics of requests, queues and batches."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def _handle_http_error(request: Request, error: Any) -> Response:
    return error_response(request.url.path, error)


async def _handle_validation_error(request: Request, error: Any) -> Response:
    return error_response(request.url.path, validation_error(error.errors()))


async def _handle_user_error(request: Request, error: Any) -> Response:
    return error_response(request.url.path, ApiError(400, str(error)))


async def _handle_tokenizer_error(request: Request, error: Any) -> Response:
    return error_response(request.url.path, ApiError(422, str(error)))


_EXCEPTION_HANDLERS = {
    HTTPException: _handle_http_error,
    RequestValidationError: _handle_validation_error,
    UserError: _handle_user_error,
    TokenizerError: _handle_tokenizer_error,
}
