"""Inference for a request: tokenization, queueing and decoding, within a time limit.

Everything except the model runs outside of the model threads. If the client disconnects or the time
is up, a request is cancelled wherever it is waiting.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from fastapi import Request

from bertwright.core.messages import count_noun
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.scoring.mask_predictions import TokenPrediction
from bertwright.models.text_batches import add_special_tokens
from bertwright.models.text_model import FloatMatrix
from bertwright.serving.batching import BatchFunction, QueueClosed, QueueFull
from bertwright.serving.errors import ApiError, shutdown_error
from bertwright.serving.model_worker import ModelRegistry, ModelWorker
from bertwright.serving.request_timeout import request_timeout
from bertwright.serving.settings import ServingSettings
from bertwright.serving.tokenization_pool import Args, ResultT, TokenizationPool
from bertwright.tasks.conformal.predictor import ConformalPredictor
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import ExtractiveQuestion, TaskExample
from bertwright.tasks.outputs import FloatArray, GeneratedOutput, MatchingOutput, Prediction
from bertwright.tasks.outputs.output_decoder import group_by_example

MAX_MASKED_POSITIONS = 512
"""Maximum number of masks per text, since each needs logits over the vocabulary."""

MAX_PREDICTED_TOKENS = 8192
"""Maximum number of predicted tokens per request, for all masks together."""


class InferenceService:
    """The inference shared by all endpoints."""

    def __init__(self, models: ModelRegistry, settings: ServingSettings) -> None:
        self.models = models
        self._settings = settings
        self._tokenization_pool = TokenizationPool(settings.max_body_bytes)

    async def embed(
        self,
        request: Request,
        worker: ModelWorker,
        texts: Sequence[str],
        truncate: bool,
        prompt_name: str | None = None,
        dimensions: int | None = None,
    ) -> tuple[FloatMatrix, int]:
        """Return the embeddings (N, D) of texts, and their number of tokens.

        ``prompt_name`` is the prompt of the model before each text, and ``dimensions`` the number
        of components of an embedding that are kept. Errors: ApiError for long texts without
        ``truncate``, an unknown prompt, too many dimensions, and embeddings that are all zeros.
        """
        prompt = _find_prompt(worker, prompt_name)
        texts = [f"{prompt}{text}" for text in texts]
        async with self.timeout(request):
            sequences = await self.tokenize(request, self._encode_texts, worker, texts, truncate)
            sizes = [len(token_ids) for token_ids in sequences]
            vectors = np.stack(await self.compute(worker, worker.embed, sequences, sizes))
        width = vectors.shape[1]
        if dimensions is not None and dimensions > width:
            raise ApiError(
                422,
                f"dimensions: embeddings of {worker.name} have {width}: request at most {width}",
            )
        if len(empty := np.flatnonzero(~vectors.any(axis=1))):
            raise ApiError(
                422,
                f"text {empty[0] + 1} has no token that {worker.name} knows: its embedding would "
                f"be zero",
            )
        return vectors[:, :dimensions], sum(sizes)

    async def predict(
        self,
        request: Request,
        worker: ModelWorker,
        examples: Sequence[TaskExample],
        truncate: bool,
        predictor: ConformalPredictor | None = None,
    ) -> tuple[list[Prediction], list[FloatArray]]:
        """Return the predictions for examples, and the head outputs (windows, K) of each.

        With a ``predictor``, predictions have its sets and abstentions.
        """
        model = worker.model
        assert isinstance(model, FineTunedModel)
        async with self.timeout(request):
            sequences = await self.tokenize(
                request, self._encode_examples, worker, examples, truncate
            )
            sizes = [len(sequence.token_ids) for sequence in sequences]
            outputs = await self.compute(worker, worker.outputs, sequences, sizes)
            decoder = predictor or model.output_decoder
            predictions = await asyncio.to_thread(decoder.decode, sequences, outputs, examples)
        groups = group_by_example(sequences, outputs, len(examples))
        return predictions, [np.concatenate([o for _, o in group]) for group in groups if group]

    async def generate(
        self, request: Request, worker: ModelWorker, examples: Sequence[TaskExample], truncate: bool
    ) -> list[Prediction]:
        """Return the generated text of every example."""
        model = worker.model
        assert isinstance(model, FineTunedModel)
        output_type = model.task.output_type
        assert isinstance(output_type, GeneratedOutput)
        async with self.timeout(request):
            sequences = await self.tokenize(
                request, self._encode_examples, worker, examples, truncate
            )
            # Generated tokens cost as much as those of the source.
            sizes = [len(s.token_ids) + output_type.max_target_length for s in sequences]
            return await self.compute(worker, worker.generate, sequences, sizes)

    async def fill_mask(
        self, request: Request, worker: ModelWorker, texts: Sequence[str], top_k: int
    ) -> list[list[list[TokenPrediction]]]:
        """Return the most probable tokens for every mask of every text."""
        async with self.timeout(request):
            sequences = await self.tokenize(
                request, self._encode_masked_texts, worker, texts, top_k
            )
            sizes = [len(token_ids) for token_ids in sequences]
            items = [(token_ids, top_k) for token_ids in sequences]
            return await self.compute(worker, worker.fill_mask, items, sizes)

    async def count_tokens(
        self, request: Request, worker: ModelWorker, texts: Sequence[str]
    ) -> list[int]:
        """Return the number of tokens of each text; ApiError for long or too many texts."""
        sequences = await self.tokenize(request, self._encode_texts, worker, texts, False)
        return [len(token_ids) for token_ids in sequences]

    def timeout(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Cancel the context on a timeout or when the client disconnects."""
        return request_timeout(request, self._settings.request_timeout_seconds)

    async def tokenize(
        self, request: Request, function: Callable[[*Args], ResultT], *args: *Args
    ) -> ResultT:
        """Run a tokenization function in the thread pool.

        Errors: ApiError if too many bytes are waiting.
        """
        return await self._tokenization_pool(len(await request.body()), function, *args)

    async def compute(
        self,
        worker: ModelWorker,
        function: BatchFunction,
        items: Sequence[Any],
        num_tokens: Sequence[int],
    ) -> list[Any]:
        """Queue the items of a request and return their results.

        Errors: ApiError for too many tokens, or a full or closed queue.
        """
        max_tokens = worker.batcher.max_queue_tokens
        if sum(num_tokens) > max_tokens:
            raise ApiError(
                413,
                f"the request has {sum(num_tokens)} tokens, the maximum is {max_tokens}: send less",
            )
        try:
            future = worker.batcher.submit(function, items, num_tokens)
        except QueueFull as full:
            # By the request timeout, all waiting requests are finished or cancelled.
            seconds = min(full.retry_seconds, ceil(self._settings.request_timeout_seconds))
            message = f"the queue of {worker.name} is full: retry in {seconds} s"
            raise ApiError(429, message, seconds) from None
        except QueueClosed:
            raise shutdown_error() from None
        return await asyncio.wrap_future(future)

    def _encode_texts(
        self, worker: ModelWorker, texts: Sequence[str], truncate: bool
    ) -> list[list[int]]:
        self.require_num_texts(texts)
        special_tokens = worker.model.tokenizer.special_tokens
        assembly = worker.model.model.recipe.assembly
        max_length = self._text_limit(worker.max_length)
        texts_ids = worker.model.tokenize(texts)
        if not truncate:
            for index, token_ids in enumerate(texts_ids):
                if len(token_ids) + 2 > max_length:
                    size = f"{len(token_ids) + 2} tokens, the maximum is {max_length}"
                    raise _too_long_error(index, f"{size}: shorten it, or use truncate with /embed")
        return [add_special_tokens(ids, special_tokens, max_length, assembly) for ids in texts_ids]

    def _encode_masked_texts(
        self, worker: ModelWorker, texts: Sequence[str], top_k: int
    ) -> list[list[int]]:
        self.require_num_texts(texts)
        tokenizer = worker.model.tokenizer
        # Check before tokenization, which encodes the text between masks separately.
        _require_num_masks(tokenizer, texts, top_k)
        max_length = self._text_limit(worker.model.model.encoder.max_length)
        sequences: list[list[int]] = []
        for index, text in enumerate(texts):
            token_ids = tokenizer.encode_with_masks(text)
            if len(token_ids) + 2 > max_length:
                size = f"{len(token_ids) + 2} tokens, the maximum is {max_length}"
                raise _too_long_error(index, f"{size}: shorten it")
            sequences.append(worker.model.encode_masked(text))
        return sequences

    def _text_limit(self, max_length: int | None) -> int:
        """Return the maximum number of tokens per text, given the model's maximum length."""
        limit = self._settings.max_text_tokens
        return min(max_length or limit, limit)

    def _encode_examples(
        self, worker: ModelWorker, examples: Sequence[TaskExample], truncate: bool
    ) -> list[TaskSequence]:
        self.require_num_texts(examples)
        model, limit = worker.model, self._settings.max_text_tokens
        assert isinstance(model, FineTunedModel)
        output_type, encoder = model.task.output_type, model.example_encoder
        if truncate and getattr(output_type, "stride", None) is None:
            encoder = replace(encoder, max_length=min(encoder.max_length, limit))
        sequences = model.output_decoder.encode(encoder, examples)
        sizes = [0] * len(examples)
        for sequence in sequences:
            index, size = sequence.example_index, len(sequence.token_ids)
            # The windows of one text are added up, but not the texts of a similarity example.
            if isinstance(output_type, MatchingOutput):
                sizes[index] = max(sizes[index], size)
            else:
                sizes[index] += size
            if sequence.num_truncated and not truncate:
                raise _too_long_error(
                    index,
                    f"{sequence.num_truncated} tokens too many: shorten it, or use truncate",
                    "question" if isinstance(examples[index], ExtractiveQuestion) else "text",
                )
        for index, size in enumerate(sizes):
            if size > limit:
                windows = "" if output_type.can_use_stride else " in all windows"
                can_truncate = output_type.can_use_stride and not truncate
                raise _too_long_error(
                    index,
                    f"{count_noun(size, 'token')}{windows}, the maximum is {limit}: shorten it"
                    f"{', or use truncate' if can_truncate else ''}",
                )
        return sequences

    def require_num_texts(self, texts: Sequence[Any]) -> None:
        """Raise ApiError for too many texts."""
        if len(texts) > self._settings.max_texts:
            raise ApiError(
                413,
                f"the request has {count_noun(len(texts), 'text')}, the maximum is "
                f"{self._settings.max_texts}",
            )


def _require_num_masks(tokenizer: Tokenizer, texts: Sequence[str], top_k: int) -> None:
    mask = tokenizer.id_to_token(tokenizer.special_tokens.mask)
    mask_counts = [text.replace(mask, "[MASK]").count("[MASK]") for text in texts]
    for index, count in enumerate(mask_counts):
        if count > MAX_MASKED_POSITIONS:
            raise _too_long_error(
                index, f"{count_noun(count, 'mask')}, the maximum is {MAX_MASKED_POSITIONS}"
            )
    if sum(mask_counts) * top_k > MAX_PREDICTED_TOKENS:
        raise ApiError(
            413,
            f"the request needs {top_k} predictions for each of {sum(mask_counts)} masks, the "
            f"maximum is {MAX_PREDICTED_TOKENS} in all: use fewer masks, or a smaller top_k",
        )


def _find_prompt(worker: ModelWorker, name: str | None) -> str:
    """Return a prompt of the model; "" without a name."""
    if name is None:
        return ""
    prompts = worker.model.model.recipe.vectors.prompts
    if name not in prompts:
        known = f"choose {', '.join(prompts)}" if prompts else "it has none, leave prompt_name out"
        raise ApiError(422, f"prompt_name: {worker.name} has no prompt {name!r}: {known}")
    return prompts[name]


def _too_long_error(index: int, message: str, kind: str = "text") -> ApiError:
    return ApiError(413, f"{kind} {index + 1} has {message}")


def get_service(request: Request) -> InferenceService:
    """Return the service of the application."""
    return request.app.state.service
