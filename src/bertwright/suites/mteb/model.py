"""A model of text vectors in the protocol of mteb's encoders."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from mteb.models import ModelMeta
from mteb.models.model_meta import ScoringFunction
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel
from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel


class MtebModel:
    """A text model as an encoder of mteb; the similarity of vectors is their cosine.

    Attributes:
        mteb_model_meta: name, and as revision the digest of the model, by which mteb keeps results.
    """

    def __init__(self, model: TextModel, name: str) -> None:
        self._encoder = model.retrieval_encoder()
        if self._encoder.representation != "dense":
            raise UserError(
                f"{name} has no single vector for a text ({self._encoder.representation}): mteb "
                f"compares vectors of texts"
            )
        self._model = model
        self.mteb_model_meta = ModelMeta.create_empty(
            overwrites={
                "name": name if "/" in name else f"bertwright/{name}",
                "revision": AnalysedModel(name, model).model_digest,
                "embed_dim": self._encoder.width,
                "n_parameters": sum(p.numel() for p in model.model.parameters()),
                "similarity_fn_name": ScoringFunction.COSINE,
                "framework": ["PyTorch"],
            }
        )

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **_: Any
    ) -> Any:
        """Return the vectors (N, D) of batches of texts, for a query those of queries."""
        texts = [text for batch in inputs for text in batch["text"]]
        match getattr(prompt_type, "value", prompt_type):
            case "query":
                return self._encoder.encode_queries(texts)
            case "document":
                return self._encoder.encode_documents(texts)
            case _:
                return self._model.embed(texts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosines (N, M) of vectors (N, D) and (M, D)."""
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosines (N,) of vectors (N, D) and (N, D)."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(-1)


def _unit(vectors: Any) -> Tensor:
    return torch.nn.functional.normalize(torch.as_tensor(vectors), dim=-1)
