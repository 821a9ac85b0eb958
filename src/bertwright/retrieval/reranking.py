"""Sort the texts that an index finds again, by a cross-encoder (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, cast

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.retrieval.search_index import SearchHit
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import RelevanceOutput


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

    def __call__(self, query: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
        """Return the hits by their relevance, which replaces the score."""
        predictions = self.model.predict([(query, hit.content) for hit in hits])
        scored = [
            replace(hit, score=cast(float, prediction.value))
            for hit, prediction in zip(hits, predictions, strict=True)
        ]
        return sorted(scored, key=lambda hit: -hit.score)
