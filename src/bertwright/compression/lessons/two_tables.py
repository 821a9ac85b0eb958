"""A teacher that knows the pieces of two vocabularies: its own, and behind them those of its
student."""

import copy

import torch
from torch import Tensor, nn

from bertwright.encoder.initialisation import WidthAware, initialise
from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Asked, Loss
from bertwright.objectives.output import Output


class TwoTables(nn.Module):
    """Pieces (...) int64 to their vectors (..., E): those below the number of rows of the first
    table are its rows, the others are counted on in the second.

    The second is a table of its own, or what a linear map makes of the table of the ``student``
    (V, e), which is no part of this module.
    """

    def __init__(self, first: nn.Embedding, student: Tensor, mapped: bool) -> None:
        super().__init__()
        width = first.embedding_dim
        self.first = first
        self.own = None if mapped else table(len(student), width)
        self.map = nn.Linear(student.shape[1], width) if mapped else None
        self._student = (student,)

    @property
    def boundary(self) -> int:
        """The number of the first piece of the second table."""
        return self.first.num_embeddings

    @property
    def second(self) -> Tensor:
        """The second table, (V, E)."""
        if self.map is not None:
            return self.map(self._student[0])
        assert self.own is not None
        return self.own.weight

    def forward(self, pieces: Tensor) -> Tensor:
        further = pieces >= self.boundary
        first = lookup(self.first.weight, pieces.masked_fill(further, 0))
        second = lookup(self.second, (pieces - self.boundary).clamp(min=0))
        return torch.where(further[..., None], second, first)


class TwoVocabularyModel(nn.Module):
    """A copy of a model with two tables and an output for each; its heads are left behind.

    ``student`` is whose pieces the second table has.
    """

    def __init__(self, model: Model, student: Model, mapped: bool) -> None:
        super().__init__()
        first, recipe = model.encoder.embeddings.pieces, model.recipe
        if not isinstance(first, nn.Embedding) or model.output is None:
            raise UserError(
                "a teacher learns other pieces where it has one table of its own, which "
                "embeddings of another kind than pieces, factorised and trigrams have not"
            )
        copied = copy.deepcopy(model).float().requires_grad_(True).eval()
        assert copied.output is not None
        self.encoder, self.first_output = copied.encoder, copied.output
        self.second_output: Output = recipe.output.build(recipe.encoder, student.vocabulary_size)
        known = copied.encoder.embeddings.pieces
        assert isinstance(known, nn.Embedding)
        self.tables = TwoTables(known, student.embedding, mapped)
        self.encoder.embeddings.pieces = self.tables
        self._initialisation = recipe.encoder.initialisation

    def begin(self, seed: int) -> None:
        """Draw what the teacher does not bring with it."""
        for new in (self.tables.own, self.second_output):
            if new is not None:
                initialise(new, self._initialisation, seed)
        if self.tables.map is not None:
            # As large behind it as before it, whatever the recipe begins with.
            initialise(self.tables.map, WidthAware(), seed)

    def loss(
        self, pieces: Tensor, coordinates: Coordinates, asked: Asked, objective: Masked
    ) -> Loss:
        """Of what is hidden in rows (B, L), each piece among those of its own vocabulary."""
        rule = self.encoder.rule
        own = objective.visibility
        states: Tensor = self.encoder(
            pieces,
            coordinates,
            rule if own is None else rule & own,
            wanted=objective.places(asked),
        )
        total, correct = states.new_zeros((), dtype=torch.float32), states.new_zeros(())
        further = asked.target >= self.tables.boundary
        for chosen, output, rows, before in (
            (~further, self.first_output, self.tables.first.weight, 0),
            (further, self.second_output, self.tables.second, self.tables.boundary),
        ):
            if chosen.any():
                weight = None if asked.weight is None else asked.weight[chosen]
                target = asked.target[chosen] - before
                loss, right = output.loss(states[chosen], rows, target, weight)
                total, correct = total + loss, correct + right
        return Loss(total, asked.count, correct)
