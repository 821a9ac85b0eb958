"""A page with a model's attention and predictions for a text."""

from collections.abc import Sequence

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from bertwright import __version__
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_nonempty_texts, parse_source_texts
from bertwright.analysis.viewer.page import render_view
from bertwright.serving.api.schemas import ApiRequest
from bertwright.serving.errors import ApiError
from bertwright.serving.model_worker import ModelWorker
from bertwright.serving.service import get_service

router = APIRouter(tags=["explorer"])

MAX_TOKENS = 64
"""Maximum number of tokens of a text; every position is masked and predicted once."""


class ExploreRequest(ApiRequest):
    """``text`` is the text to show; the texts of a pair are separated by a tab."""

    text: str


@router.post("/explore", response_class=HTMLResponse)
async def explore(body: ExploreRequest, request: Request) -> HTMLResponse:
    """Return a page with the attention of every head and the predictions at every position."""
    service = get_service(request)
    worker = service.models.find(body.model, "explore")
    if not body.text.strip():
        raise ApiError(422, "text: must not be empty: enter some words")
    async with service.timeout(request):
        (token_ids,) = await service.tokenize(request, worker.model.tokenize, [body.text])
        size = len(token_ids) + 2
        if size > MAX_TOKENS:
            raise ApiError(
                413, f"the text has {size} tokens, the maximum is {MAX_TOKENS}: shorten it"
            )
        # Every position is masked once, so a single text may fill the whole queue.
        cost = max(size, min(size * size, worker.batcher.max_queue_tokens))
        (page,) = await service.compute(worker, _render_pages, [(worker, body.text)], [cost])
    return HTMLResponse(page)


def _render_pages(items: Sequence[tuple[ModelWorker, str]]) -> list[str]:
    return [_render_page(worker, text) for worker, text in items]


def _render_page(worker: ModelWorker, text: str) -> str:
    model = AnalysedModel(worker.name, worker.model)
    texts = encode_nonempty_texts(model, parse_source_texts([text]), MAX_TOKENS)
    return render_view(AnalysisInput(model, texts), f"Made by bertwright {__version__}.")
