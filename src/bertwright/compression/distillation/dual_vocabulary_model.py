"""A teacher with two vocabularies: its own, followed by the student's."""

import copy

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.models.model import Model
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.initialisation import WidthAwareInitialisationConfig, initialise
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.objectives.model_output import DeviceTargets, Loss
from bertwright.objectives.objective import Objective


class DualEmbedding(nn.Module):
    """An embedding of two concatenated tables: token ids (...) int64 to vectors (..., E).

    The ids of the second table follow the ids of the first. The second table has its own weights,
    or is a linear projection of ``student_table`` (V, e), which is not part of this module.
    """

    def __init__(
        self, teacher_embedding: nn.Embedding, student_table: Tensor, is_projected: bool
    ) -> None:
        super().__init__()
        width = teacher_embedding.embedding_dim
        self.teacher_embedding = teacher_embedding
        self.student_embedding = (
            None if is_projected else empty_embedding(len(student_table), width)
        )
        self.projection = nn.Linear(student_table.shape[1], width) if is_projected else None
        self._student_table = (student_table,)

    @property
    def student_offset(self) -> int:
        """Id of the first token of the second table."""
        return self.teacher_embedding.num_embeddings

    @property
    def student_vectors(self) -> Tensor:
        """The second table, (V, E)."""
        if self.projection is not None:
            return self.projection(self._student_table[0])
        assert self.student_embedding is not None
        return self.student_embedding.weight

    def forward(self, token_ids: Tensor) -> Tensor:
        is_second = token_ids >= self.student_offset
        first = embedding_lookup(self.teacher_embedding.weight, token_ids.masked_fill(is_second, 0))
        second = embedding_lookup(
            self.student_vectors, (token_ids - self.student_offset).clamp(min=0)
        )
        return torch.where(is_second[..., None], second, first)


class DualVocabularyModel(nn.Module):
    """A copy of a model with two embedding tables and an output layer for each, without heads.

    The second table is for the vocabulary of ``student``.
    """

    def __init__(self, model: Model, student: Model, is_projected: bool) -> None:
        super().__init__()
        recipe = model.recipe
        has_single_table = (
            isinstance(model.encoder.embeddings.tokens, nn.Embedding)
            and model.encoder.value_embeddings is None
        )
        if not has_single_table or model.output is None:
            raise UserError(
                "the teacher needs a single embedding table and an LM head: choose one with "
                "embeddings of kind tokens and without value_embeddings"
            )
        teacher = copy.deepcopy(model).float().requires_grad_(True).eval()
        assert teacher.output is not None
        self.encoder, self.teacher_output = teacher.encoder, teacher.output
        self.student_output: LMHead = recipe.output.build(recipe.encoder, student.vocab_size)
        embedding = teacher.encoder.embeddings.tokens
        assert isinstance(embedding, nn.Embedding)
        self.embeddings = DualEmbedding(embedding, student.embedding_table, is_projected)
        self.encoder.embeddings.tokens = self.embeddings
        self._initialisation = recipe.encoder.initialisation

    def init(self, seed: int) -> None:
        """Initialise the weights that the teacher does not have."""
        for module in (self.embeddings.student_embedding, self.student_output):
            if module is not None:
                initialise(module, self._initialisation, seed)
        if self.embeddings.projection is not None:
            # Keeps the scale of the vectors, regardless of the recipe's initialisation.
            initialise(self.embeddings.projection, WidthAwareInitialisationConfig(), seed)

    def loss(
        self, token_ids: Tensor, token_info: TokenInfo, targets: DeviceTargets, objective: Objective
    ) -> Loss:
        """Return the loss at the masked positions of sequences (B, L).

        Each token is predicted among the tokens of its own vocabulary only.
        """
        rule, extra = self.encoder.visibility, objective.visibility
        states: Tensor = self.encoder(
            token_ids,
            token_info,
            rule if extra is None else rule & extra,
            output_positions=objective.output_positions(targets),
        )
        total, correct = states.new_zeros((), dtype=torch.float32), states.new_zeros(())
        embeddings = self.embeddings
        offset = embeddings.student_offset
        is_second = targets.labels >= offset
        for mask, head, table, first_id in (
            (~is_second, self.teacher_output, embeddings.teacher_embedding.weight, 0),
            (is_second, self.student_output, embeddings.student_vectors, offset),
        ):
            if mask.any():
                weights = None if targets.weights is None else targets.weights[mask]
                labels = targets.labels[mask] - first_id
                loss, num_correct = head.loss(states[mask], table, labels, weights)
                total, correct = total + loss, correct + num_correct
        return Loss(total, targets.total_weight, correct)
