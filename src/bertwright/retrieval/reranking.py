"""Sort the texts that an index finds again, by a cross-encoder (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast

import numpy as np
from numpy.typing import NDArray

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.retrieval.search_index import SearchHit
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs import RelevanceOutput
from bertwright.tasks.outputs.output_decoder import group_by_example


@dataclass(frozen=True)
class CrossEncoder:
    """A model fine-tuned for ``rank`` that sorts the hits of a query by their relevance."""

    model: FineTunedModel

    @classmethod
    def load(cls, folder: str | Path, precision: InferencePrecision | None = None) -> Self:
        """Load a model folder; UserError for a model that does not rank."""
        model = load(folder, precision)
        if not isinstance(model, FineTunedModel) or not isinstance(
            model.task.output_type, RelevanceOutput
        ):
            raise UserError(
                f"{folder} is no cross-encoder: fine-tune one with bertwright finetune --task rank"
            )
        return cls(model)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the logit of the relevance of each text to its query, (N,)."""
        examples = [Example(query, text) for query, text in pairs]
        sequences = self.model.output_decoder.encode(self.model.example_encoder, examples)
        outputs = self.model.head_outputs(sequences)
        groups = group_by_example(sequences, outputs, len(examples))
        return np.array([parts[0][1].item() for parts in groups], np.float64)

    def __call__(self, query: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
        """Return the hits by their relevance, which replaces the score."""
        predictions = self.model.predict([(query, hit.content) for hit in hits])
        scored = [
            replace(hit, score=cast(float, prediction.value))
            for hit, prediction in zip(hits, predictions, strict=True)
        ]
        return sorted(scored, key=lambda hit: -hit.score)
