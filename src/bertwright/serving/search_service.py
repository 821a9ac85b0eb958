"""Search in the indexes of a server."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fastapi import Request

from bertwright.core.config import did_you_mean, quote
from bertwright.models.retrieval_encoder import TextVectors
from bertwright.retrieval.search_index import SearchHit, SearchIndex
from bertwright.retrieval.vectors.segment import join_vectors
from bertwright.serving.errors import ApiError
from bertwright.serving.model_worker import ModelWorker
from bertwright.serving.service import InferenceService

MAX_HITS = 1_000
"""Maximum number of texts per query."""

MAX_WAITING_SEARCHES = 64
"""Maximum number of requests that wait for an index; further requests are rejected."""


@dataclass(frozen=True)
class ServedIndex:
    """A search index with the name of the served model that encodes its queries, if it has one."""

    index: SearchIndex
    model: str | None


class SearchService:
    """The indexes of a server by name. Each has one thread, which reads its mapped files."""

    def __init__(self, indexes: Mapping[str, ServedIndex], inference: InferenceService) -> None:
        self._indexes, self._inference = indexes, inference
        self._threads = {name: ThreadPoolExecutor(1, f"search-{name}") for name in indexes}
        self._num_waiting = dict.fromkeys(indexes, 0)

    @property
    def names(self) -> list[str]:
        """Return the names of the indexes."""
        return list(self._indexes)

    async def search(
        self, request: Request, name: str | None, queries: Sequence[str], top: int
    ) -> list[list[SearchHit]]:
        """Return the best texts for each query, from the named index or else the first one.

        Errors: ApiError if there is no such index, for too many or too long queries, and if too
        many requests are waiting.
        """
        name = self._find(name)
        served = self._indexes[name]
        async with self._inference.timeout(request):
            vectors: TextVectors | None = None
            if served.model is None:
                self._inference.require_num_texts(queries)
            else:
                worker = self._inference.models.get(served.model)
                vectors = await self._encode(request, worker, queries)
            if self._num_waiting[name] >= MAX_WAITING_SEARCHES:
                raise ApiError(429, f"too many requests wait for {name}: retry in 1 s", 1)
            self._num_waiting[name] += 1
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads[name], _find_hits, served.index, queries, top, vectors
                )
            finally:
                self._num_waiting[name] -= 1

    async def _encode(
        self, request: Request, worker: ModelWorker, queries: Sequence[str]
    ) -> TextVectors:
        sizes = await self._inference.count_tokens(request, worker, queries)
        parts = await self._inference.compute(worker, worker.encode_queries, queries, sizes)
        return join_vectors(parts)

    def _find(self, name: str | None) -> str:
        if not self._indexes:
            raise ApiError(404, "this server has no index: start it with --index DIR")
        if name is None:
            return next(iter(self._indexes))
        if name not in self._indexes:
            raise ApiError(
                404, f"there is no index {quote(name)}{did_you_mean(name, self._indexes)}"
            )
        return name

    def close(self) -> None:
        """Finish the searches that wait, then stop all threads."""
        for thread in self._threads.values():
            thread.shutdown()


def _find_hits(
    index: SearchIndex, queries: Sequence[str], top: int, vectors: "TextVectors | None"
) -> list[list[SearchHit]]:
    return [index.hits(ranking) for ranking in index.rank(queries, top, vectors)]
