"""A model with its queue and threads, and the registry of models."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch

from bertwright.core.config import did_you_mean, quote
from bertwright.interop.onnx.model import OnnxModel
from bertwright.models.retrieval_encoder import TextVectors
from bertwright.models.scoring.mask_predictions import TokenPrediction
from bertwright.models.text_model import FloatMatrix, TextModel
from bertwright.retrieval.vectors.segment import split_vectors
from bertwright.serving.batching import Batcher
from bertwright.serving.errors import ApiError
from bertwright.serving.metrics import Metrics
from bertwright.serving.settings import ServingSettings
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import (
    ClassificationOutput,
    FloatArray,
    GeneratedOutput,
    MultiLabelOutput,
    OutputType,
    Prediction,
    RegressionOutput,
    RelevanceOutput,
    SimilarityOutput,
    SpanOutput,
    TokenClassificationOutput,
)


@dataclass(frozen=True)
class EndpointRequirement:
    """What an endpoint requires of a model."""

    description: str
    is_met: Callable[[TextModel], bool]


def _has_output_type(*output_types: type[OutputType]) -> Callable[[TextModel], bool]:
    return lambda model: (
        isinstance(model, FineTunedModel) and isinstance(model.task.output_type, output_types)
    )


def _is_calibrated(model: TextModel) -> bool:
    """Return whether the predictions of a model have sets of guaranteed coverage."""
    is_classifier = _has_output_type(ClassificationOutput, RegressionOutput)(model)
    return is_classifier and isinstance(model, FineTunedModel) and model.conformal is not None


def _is_inspectable(model: TextModel) -> bool:
    """Return whether activations can be recorded, which an ONNX graph does not allow."""
    return not isinstance(model, OnnxModel) and len(model.model.encoder.blocks) > 0


ENDPOINT_REQUIREMENTS = {
    "embed": EndpointRequirement(
        "a model with one vector for each text",
        lambda model: model.retrieval_encoder().representation == "dense",
    ),
    "classify": EndpointRequirement(
        "a classifier or regressor calibrated by bertwright calibrate", _is_calibrated
    ),
    "explore": EndpointRequirement("a PyTorch model with blocks", _is_inspectable),
    "fill-mask": EndpointRequirement("a masked language model", lambda model: model.is_masked_lm),
    "predict": EndpointRequirement(
        "a model fine-tuned for classification, regression or text pairs",
        _has_output_type(
            ClassificationOutput,
            MultiLabelOutput,
            RegressionOutput,
            SimilarityOutput,
            RelevanceOutput,
        ),
    ),
    "rerank": EndpointRequirement(
        "a cross-encoder fine-tuned with --task rank", _has_output_type(RelevanceOutput)
    ),
    "tag": EndpointRequirement(
        "a model fine-tuned for token classification", _has_output_type(TokenClassificationOutput)
    ),
    "answer": EndpointRequirement(
        "a model fine-tuned for question answering", _has_output_type(SpanOutput)
    ),
    "generate": EndpointRequirement(
        "a model fine-tuned to generate text", _has_output_type(GeneratedOutput)
    ),
}


class ModelWorker:
    """A named model with its queue, and the functions that its threads compute."""

    def __init__(
        self, name: str, model: TextModel, settings: ServingSettings, metrics: Metrics
    ) -> None:
        self.name, self.model = name, model
        num_threads, init_thread = _worker_threads(model)
        # Warm up in a worker-like thread: compilation depends on the number of threads.
        with ThreadPoolExecutor(1, initializer=init_thread) as thread:
            thread.submit(self._warm_up).result()
        self.batcher = Batcher(
            model.batch_tokens,
            settings.max_queue_tokens,
            settings.max_batch_delay_ms / 1000,
            metrics.batch_recorder(name),
            num_threads,
            init_thread,
        )
        metrics.watch_queue(name, lambda: self.batcher.queue_tokens)

    def _warm_up(self) -> None:
        """Embed one sequence, a batch and a padded batch, before the first request."""
        special = self.model.tokenizer.special_tokens
        short = [special.start, special.end]
        for sequences in ([short], [short, short], [short, [*short, special.end]]):
            self.embed(sequences)

    @property
    def endpoints(self) -> list[str]:
        """Return the names of the endpoints that the model supports."""
        return [name for name, need in ENDPOINT_REQUIREMENTS.items() if need.is_met(self.model)]

    @property
    def max_length(self) -> int | None:
        """Return the maximum sequence length for embeddings; None for no limit."""
        return self.model.max_length

    def embed(self, sequences: Sequence[list[int]]) -> list[FloatMatrix]:
        """Return the embedding (D,) of every sequence."""
        return list(self.model.embed_ids(sequences))

    def outputs(self, sequences: Sequence[TaskSequence]) -> list[FloatArray]:
        """Return the head outputs of a fine-tuned model for each sequence."""
        assert isinstance(self.model, FineTunedModel)
        return self.model.head_outputs(sequences)

    def generate(self, sequences: Sequence[TaskSequence]) -> list[Prediction]:
        """Return the text that a fine-tuned model generates for each sequence."""
        assert isinstance(self.model, FineTunedModel)
        return self.model.output_decoder.predict(self.model, sequences, ())

    def encode_queries(self, queries: Sequence[str]) -> list[TextVectors]:
        """Return the vectors of each query for a search index."""
        return split_vectors(self.model.retrieval_encoder().encode_queries(queries))

    def fill_mask(
        self, items: Sequence[tuple[list[int], int]]
    ) -> list[list[list[TokenPrediction]]]:
        """Return the most probable tokens for every mask; items are (token ids, top_k)."""
        return [self.model.fill_mask_ids(token_ids, top_k) for token_ids, top_k in items]


def _worker_threads(model: TextModel) -> tuple[int, Callable[[], None]]:
    """Return the number of worker threads for a model, and their initialiser.

    On a CPU each core computes its own batch: threads that share a batch would wait for each other
    at every operation whenever another process occupies a core.
    """
    if model.device.type != "cpu" or isinstance(model, OnnxModel):
        return 1, lambda: None
    return torch.get_num_threads(), partial(torch.set_num_threads, 1)


class ModelRegistry:
    """The models of a server by name; the default is the first one that supports the endpoint."""

    def __init__(
        self, models: Mapping[str, TextModel], settings: ServingSettings, metrics: Metrics
    ) -> None:
        self.workers = {
            name: ModelWorker(name, model, settings, metrics) for name, model in models.items()
        }

    def find(self, name: str | None, endpoint: str) -> ModelWorker:
        """Return the named model, or the first one that supports an endpoint.

        Errors: ApiError if there is none.
        """
        requirement = ENDPOINT_REQUIREMENTS[endpoint]
        named = None if name is None else self.get(name)
        suitable = [w for w in self.workers.values() if requirement.is_met(w.model)]
        if named in suitable:
            return named
        needs = f"{endpoint} needs {requirement.description}"
        if named is not None:
            alternatives = ", ".join(worker.name for worker in suitable) or "another server"
            raise ApiError(400, f"{needs}, which {name} is not: use {alternatives}")
        if not suitable:
            raise ApiError(404, f"no model here supports this: {needs}")
        return suitable[0]

    def get(self, name: str) -> ModelWorker:
        """Return the model of this name; raise ApiError if there is none."""
        if name not in self.workers:
            raise ApiError(
                404, f"there is no model {quote(name)}{did_you_mean(name, self.workers)}"
            )
        return self.workers[name]

    def close(self) -> None:
        """Compute the waiting requests, then stop all threads."""
        for worker in self.workers.values():
            worker.batcher.close()
