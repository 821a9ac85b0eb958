"""The outputs of a graph: hidden states, and what people read from them.

A graph of an encoder ends in the embedding of a text, that of a fine-tuned model in its logits and
probabilities.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.interop.graph.inputs import (
    END_LOGITS,
    LAST_HIDDEN_STATE,
    LOGITS,
    PROBABILITIES,
    SENTENCE_EMBEDDING,
    START_LOGITS,
)
from bertwright.models.text_model import TextModel
from bertwright.modules.sentence_pooling import pool_sentences
from bertwright.modules.vector_projection import VectorProjection
from bertwright.recipes import SentenceVectorSettings
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import SimilarityOutput, SpanOutput
from bertwright.tasks.outputs.output_type import Activation


@dataclass(frozen=True)
class GraphOutputs:
    """The outputs of a graph by name, in order.

    Attributes:
        vectors: how ``sentence_embedding`` is pooled, scaled and truncated.
        ends_with_start_token: whether the start token of a text is its last.
        unit_length: scale ``sentence_embedding`` to length 1, after it is truncated.
        temperature: divides the logits of a task, so that they are calibrated.
        activation: how logits become ``probabilities``.
    """

    names: tuple[str, ...]
    vectors: SentenceVectorSettings
    ends_with_start_token: bool = False
    unit_length: bool = False
    temperature: float = 1.0
    activation: Activation | None = None

    @staticmethod
    def of(model: TextModel, unit_length: bool = False) -> "GraphOutputs":
        """Return the outputs of a model's graph."""
        recipe = model.model.recipe
        settings = recipe.vectors, recipe.assembly.ends_with_start_token, unit_length
        if not isinstance(model, FineTunedModel):
            logits = (LOGITS,) if model.has_lm_head else ()
            return GraphOutputs((LAST_HIDDEN_STATE, *logits, SENTENCE_EMBEDDING), *settings)
        output_type = model.task.output_type
        if isinstance(output_type, SimilarityOutput):
            return GraphOutputs((LAST_HIDDEN_STATE, SENTENCE_EMBEDDING), *settings)
        names = [LAST_HIDDEN_STATE, LOGITS]
        if isinstance(output_type, SpanOutput):
            names += [START_LOGITS, END_LOGITS]
        if output_type.activation is not None:
            names.append(PROBABILITIES)
        return GraphOutputs(tuple(names), *settings, model.temperature, output_type.activation)

    def pool(
        self,
        hidden_states: Tensor,
        document_ids: Tensor,
        projection: VectorProjection | None = None,
    ) -> Tensor:
        """Return the embeddings (B, D) of texts with hidden states (B, L, D)."""
        pooled = pool_sentences(
            hidden_states, document_ids, self.vectors.pooling, self.ends_with_start_token
        )
        return self.scale(pooled if projection is None else projection(pooled))

    def scale(self, pooled: Tensor) -> Tensor:
        """Scale and truncate vectors (B, D)."""
        if self.vectors.normalise:
            pooled = torch.nn.functional.normalize(pooled, dim=-1)
        pooled = pooled[:, : self.vectors.truncate_dim]
        return torch.nn.functional.normalize(pooled, dim=-1) if self.unit_length else pooled

    def from_head(self, outputs: Tensor) -> Mapping[str, Tensor]:
        """Return the outputs by name, given those of a task head: (B, K) or (B, L, K)."""
        if SENTENCE_EMBEDDING in self.names:
            return {SENTENCE_EMBEDDING: self.scale(outputs)}
        logits = outputs if self.temperature == 1.0 else outputs / self.temperature
        values = {LOGITS: logits}
        if START_LOGITS in self.names:
            values |= {START_LOGITS: logits[..., 0], END_LOGITS: logits[..., 1]}
        if self.activation == "softmax":
            values[PROBABILITIES] = logits.softmax(-1)
        elif self.activation == "sigmoid":
            values[PROBABILITIES] = logits.sigmoid()
        return values
