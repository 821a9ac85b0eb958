"""The page for a visitor: a form for a text, and the viewer of what a model does with it.

One of the model's threads makes the page, while the others wait: what looks at the inside of an
encoder must be alone with it.
"""

from collections.abc import Sequence
from importlib import resources

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from bertwright import __version__
from bertwright.analysis.analysis import Case
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_given, worded
from bertwright.analysis.viewer.page import view_page
from bertwright.serving.desk import desk_of
from bertwright.serving.refusals import Refusal
from bertwright.serving.served import Served
from bertwright.serving.texts import Asked

router = APIRouter(tags=["explorer"])

LONGEST = 64
"""Pieces of a text: every place of it is read once more for what the model would name there."""

FORM = resources.files("bertwright.serving").joinpath("form.html").read_text(encoding="utf-8")


class ExploreRequest(Asked):
    """``text`` is looked at; a pair has a tab between."""

    text: str


@router.get("/", include_in_schema=False)
async def form() -> HTMLResponse:
    """The form."""
    return HTMLResponse(FORM)


@router.post("/explore", response_class=HTMLResponse)
async def explore(asked: ExploreRequest, request: Request) -> HTMLResponse:
    """A page that shows what every head looks at, and what the model would name in every place."""
    desk = desk_of(request)
    served = desk.models.find(asked.model, "explore")
    if not asked.text.strip():
        raise Refusal(422, "text: there is none: type some words")
    async with desk.patience(request):
        (pieces,) = await desk.prepared(request, served.model.pieces, [asked.text])
        size = len(pieces) + 2
        if size > LONGEST:
            raise Refusal(413, f"the text has {size} tokens, and {LONGEST} are shown: shorten it")
        # Each of its places is hidden once; what fills the queue alone is no reason to refuse it.
        cost = max(size, min(size * size, served.batcher.bound))
        (page,) = await desk.computed(served, _pages, [(served, asked.text)], [cost])
    return HTMLResponse(page)


def _pages(rows: Sequence[tuple[Served, str]]) -> list[str]:
    return [_page(served, text) for served, text in rows]


def _page(served: Served, text: str) -> str:
    subject = Subject(served.name, served.model)
    with served.alone():
        case = Case(subject, worded(subject, read_given([text]), LONGEST))
        return view_page(case, f"Made by bertwright {__version__}.")
