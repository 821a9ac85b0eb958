"""Contrastive learning of text vectors without labels: InfoNCE (van den Oord et al. 2018).

The two isolated texts of a sequence are a positive pair. The input format makes them: the same
sentence twice, which dropout alone distinguishes (SimCSE, Gao et al. 2021); neighbouring sentences
(Logeswaran and Lee 2018); or two spans of a document (DeCLUTR, Giorgi et al. 2021).
"""

from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertwright.batches.formats import InputFormat
from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.modules.attention.mask import SameDocumentVisibility, Visibility
from bertwright.modules.sentence_pooling import pool_documents
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, MaskingContext, Objective


class Contrastive(Objective):
    """Find the second text of each sequence among the second texts of all sequences of a step.

    The loss is the cross-entropy of the cosines of their vectors, divided by ``temperature``. With
    ``among: all`` each text is found among all other texts of the step, and the loss is the mean
    over both texts of a sequence (NT-Xent, Chen et al. 2020). The vectors are pooled and projected
    as in the recipe's ``vectors``. With ``projection``, a linear layer with tanh maps them; it is
    used in training only. Sequences of one text have no target.
    """

    kind: Literal["contrastive"] = "contrastive"
    temperature: float = Field(default=0.05, gt=0.0, le=100.0)
    projection: bool = False
    among: Literal["second", "all"] = "second"

    capabilities: ClassVar[Capabilities] = Capabilities(
        is_classification=False, compares_sequences=True
    )

    @property
    def visibility(self) -> Visibility:
        return SameDocumentVisibility()

    def format_conflict(self, input_format: InputFormat) -> str | None:
        if input_format.num_isolated_texts == 2:
            return None
        return (
            "needs two isolated texts in a sequence: set assembly.kind to document-crops, or to "
            "sentence-groups with two sentences, or with one sentence and two copies"
        )

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        num_sequences, length = batch.token_ids.shape
        document_ids = batch.token_info.document_ids
        assert document_ids is not None, "isolated texts have document ids"
        positions = length * np.arange(num_sequences, dtype=np.int64)
        weights = (document_ids == 1).any(axis=1).astype(np.float32)
        return batch, Targets(positions, np.zeros_like(positions), weights)

    def build_head(self, context: HeadContext) -> nn.Module | None:
        width = context.vector_width
        return nn.Linear(width, width) if self.projection else None

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        token_info = output.token_info
        assert token_info is not None, "a batch has token info"
        assert token_info.document_ids is not None, "isolated texts have document ids"
        states = output.hidden_states.view(*output.token_ids.shape, -1)
        vectors = pool_documents(states, token_info.document_ids, 2, output.pooling)
        if output.vector_projection is not None:
            vectors = output.vector_projection(vectors)
        if head is not None:
            vectors = torch.tanh(head(vectors.to(states.dtype))).float()
        texts, partners = vectors.unbind(1)
        num_sequences = len(texts)
        if self.among == "all":
            texts, partners = torch.cat((texts, partners)), torch.cat((partners, texts))
        logits = cosine_matrix(texts, partners) / self.temperature
        labels = torch.arange(len(texts), device=logits.device)
        # With all texts, each is also a partner, one number of sequences away from its own.
        is_excluded = (labels[:, None] - labels).abs() == num_sequences
        if targets.weights is not None:
            is_missing = (targets.weights == 0)[labels % num_sequences]
            is_excluded |= is_missing & (labels[:, None] != labels)
        logits = logits.masked_fill(is_excluded, -torch.inf)
        losses = F.cross_entropy(logits, labels, reduction="none").view(-1, num_sequences).mean(0)
        return targets.score(losses, (logits.argmax(1) == labels)[:num_sequences])


def cosine_matrix(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosines (N, M) of vectors (N, D) with vectors (M, D)."""
    return F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T
