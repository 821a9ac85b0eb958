"""From the texts of a request to the results: pieces in a thread, a queue, an answer in time.

Whatever does not need the model happens outside of its thread. A request whose client has left, or
that takes too long, is let go wherever it waits.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from fastapi import Request

from bertwright.model.reading import single
from bertwright.model.text_model import Guess, Vectors
from bertwright.serving.batching import Closed, Compute, Full
from bertwright.serving.patience import patience
from bertwright.serving.preparing import Given, Made, Preparing
from bertwright.serving.refusals import Refusal, stopping
from bertwright.serving.served import Models, Served
from bertwright.serving.settings import Settings
from bertwright.tasks.answers import ClosenessAnswer, Floats, Prediction
from bertwright.tasks.answers.answer import by_example
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import AnyExample, Question
from bertwright.text.tokenizers import Tokenizer

PLACES = 512
"""Hidden places of a text that are answered: each has a number for every piece there is."""

GUESSES = 8192
"""Pieces that are named in the answer to one request, over all its hidden places."""


class Desk:
    """What every endpoint asks."""

    def __init__(self, models: Models, settings: Settings) -> None:
        self.models = models
        self._settings = settings
        self._prepare = Preparing(settings.body_bytes)

    async def vectors(
        self, request: Request, served: Served, texts: Sequence[str], truncate: bool
    ) -> tuple[Vectors, int]:
        """The vectors (N, D) of texts, and how many tokens those have; a text that is too long is
        cut only where that is asked for."""
        async with self.patience(request):
            rows = await self.prepared(request, self._rows, served, texts, truncate)
            sizes = [len(row) for row in rows]
            found = np.stack(await self.computed(served, served.vectors, rows, sizes))
        if len(nothing := np.flatnonzero(~found.any(axis=1))):
            raise Refusal(
                422,
                f"text {nothing[0] + 1} holds nothing that {served.name} knows: its vector would "
                f"be zeros",
            )
        return found, sum(sizes)

    async def predictions(
        self, request: Request, served: Served, examples: Sequence[AnyExample], truncate: bool
    ) -> tuple[list[Prediction], list[Floats]]:
        """The answers to examples, and what the head says of each, (k, K) of all its rows."""
        model = served.model
        assert isinstance(model, FineTuned)
        async with self.patience(request):
            rows = await self.prepared(request, self._task_rows, served, examples, truncate)
            sizes = [len(row.pieces) for row in rows]
            outputs = await self.computed(served, served.outputs, rows, sizes)
            said = await asyncio.to_thread(model.answering.predictions, rows, outputs, examples)
        parts = by_example(rows, outputs, len(examples))
        return said, [np.concatenate([of for _, of in own]) for own in parts if own]

    async def guesses(
        self, request: Request, served: Served, texts: Sequence[str], top_k: int
    ) -> list[list[list[Guess]]]:
        """The likeliest pieces of every hidden place of every text."""
        async with self.patience(request):
            rows = await self.prepared(request, self._hiding_rows, served, texts, top_k)
            sizes = [len(row) for row in rows]
            asked = [(row, top_k) for row in rows]
            return await self.computed(served, served.guesses, asked, sizes)

    def patience(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Within it a request is worked on no longer than its client waits, or may wait."""
        return patience(request, self._settings.timeout_seconds)

    async def prepared(
        self, request: Request, make: Callable[[*Given], Made], *given: *Given
    ) -> Made:
        """What a function makes of the texts of a request, outside of the thread that answers.

        Errors: Refusal where too much waits for that.
        """
        return await self._prepare(len(await request.body()), make, *given)

    async def computed(
        self, served: Served, compute: Compute, rows: Sequence[Any], sizes: Sequence[int]
    ) -> list[Any]:
        """The results of rows of so many tokens each, when it is their turn.

        Errors: Refusal where they are too many, or the queue is full or closed.
        """
        bound = served.batcher.bound
        if sum(sizes) > bound:
            raise Refusal(
                413,
                f"the request has {sum(sizes)} tokens, and {bound} are taken at once: send fewer",
            )
        try:
            answer = served.batcher.submit(compute, rows, sizes)
        except Full as full:
            # Whatever waits is answered by then, or let go.
            seconds = min(full.seconds, ceil(self._settings.timeout_seconds))
            sentence = f"{served.name} has no room in its queue: come again in {seconds} s"
            raise Refusal(429, sentence, seconds) from None
        except Closed:
            raise stopping() from None
        return await asyncio.wrap_future(answer)

    def _rows(self, served: Served, texts: Sequence[str], truncate: bool) -> list[list[int]]:
        self._require_few(texts)
        special, longest = served.model.tokenizer.specials, self._longest(served.longest)
        ids = served.model.pieces(texts)
        if not truncate:
            for number, pieces in enumerate(ids):
                if len(pieces) + 2 > longest:
                    size = f"{len(pieces) + 2} tokens, and {longest} are read"
                    raise _too_long(number, f"{size}: shorten it, or say truncate to /embed")
        return [single(pieces, special, longest) for pieces in ids]

    def _hiding_rows(self, served: Served, texts: Sequence[str], top_k: int) -> list[list[int]]:
        self._require_few(texts)
        tokenizer = served.model.tokenizer
        # Before there are pieces: those between two hidden places are made by themselves.
        _require_few_places(tokenizer, texts, top_k)
        longest = self._longest(served.model.model.encoder.longest)
        rows: list[list[int]] = []
        for number, text in enumerate(texts):
            ids = tokenizer.encode_hiding(text)
            if len(ids) + 2 > longest:
                size = f"{len(ids) + 2} tokens, and {longest} are read"
                raise _too_long(number, f"{size}: shorten it")
            rows.append(served.model.hiding_row(text))
        return rows

    def _longest(self, own: int | None) -> int:
        """Tokens of a text that are read, of a model that reads so many."""
        most = self._settings.text_tokens
        return min(own or most, most)

    def _task_rows(
        self, served: Served, examples: Sequence[AnyExample], truncate: bool
    ) -> list[TaskRow]:
        self._require_few(examples)
        model, longest = served.model, self._settings.text_tokens
        assert isinstance(model, FineTuned)
        answer, maker = model.task.answer, model.maker
        if truncate and getattr(answer, "stride", None) is None:
            maker = replace(maker, length=min(maker.length, longest))
        rows = model.answering.rows(maker, examples)
        sizes = [0] * len(examples)
        for row in rows:
            # All rows of an example are of one text, unless it compares several.
            others = 0 if isinstance(answer, ClosenessAnswer) else sizes[row.example]
            sizes[row.example] = max(sizes[row.example], others + len(row.pieces))
            if row.num_cut and not truncate:
                more = f"{row.num_cut} tokens more than are read"
                what = "question" if isinstance(examples[row.example], Question) else "text"
                raise _too_long(row.example, f"{more}: shorten it, or say truncate", what)
        for number, size in enumerate(sizes):
            if size > longest:
                several = "" if answer.lacks_stride else " in all its windows"
                raise _too_long(
                    number,
                    f"{size} tokens{several}, and {longest} are read: shorten it"
                    f"{', or say truncate' if answer.lacks_stride and not truncate else ''}",
                )
        return rows

    def _require_few(self, texts: Sequence[Any]) -> None:
        most = self._settings.num_texts
        if len(texts) > most:
            raise Refusal(413, f"the request has {len(texts)} texts, and {most} are taken at once")


def _require_few_places(tokenizer: Tokenizer, texts: Sequence[str], top_k: int) -> None:
    mask = tokenizer.piece(tokenizer.specials.mask)
    places = [text.replace(mask, "[MASK]").count("[MASK]") for text in texts]
    for number, own in enumerate(places):
        if own > PLACES:
            raise _too_long(number, f"{own} hidden places, and {PLACES} are answered")
    if sum(places) * top_k > GUESSES:
        raise Refusal(
            413,
            f"the request asks for {top_k} pieces in each of {sum(places)} places, and "
            f"{GUESSES} are named at once: hide fewer, or say a smaller top_k",
        )


def _too_long(number: int, words: str, what: str = "text") -> Refusal:
    return Refusal(413, f"{what} {number + 1} has {words}")


def desk_of(request: Request) -> Desk:
    """The desk of the application that a request came to."""
    return request.app.state.desk
