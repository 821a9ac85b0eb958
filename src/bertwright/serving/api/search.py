"""The endpoint of search indexes."""

from dataclasses import asdict
from typing import cast

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, field_validator

from bertwright.serving.api.schemas import StrictRequest, TextList
from bertwright.serving.search_service import MAX_HITS, SearchService

router = APIRouter(tags=["bertwright"])


class SearchRequest(StrictRequest):
    """``queries`` are texts; ``top`` is the number of texts per query; ``index`` a name."""

    queries: TextList
    top: int = Field(default=10, ge=1, le=MAX_HITS)
    index: str | None = None

    @field_validator("queries")
    @classmethod
    def _require_content(cls, queries: list[str]) -> list[str]:
        if not all(query.strip() for query in queries):
            raise ValueError("holds an empty query: write what to search for")
        return queries


class RankedText(BaseModel):
    """A text of an index, and its score: higher is better, within one query.

    A chunk of a text has the characters from ``start`` to ``stop`` of it.
    """

    id: str
    score: float
    text: str
    title: str | None = None
    start: int | None = None
    stop: int | None = None


@router.post("/search", response_model_exclude_none=True)
async def search(body: SearchRequest, request: Request) -> list[list[RankedText]]:
    """Return the best texts of an index for every query."""
    service = cast(SearchService, request.app.state.search)
    results = await service.search(request, body.index, body.queries, body.top)
    return [[RankedText(**asdict(hit)) for hit in hits] for hits in results]
