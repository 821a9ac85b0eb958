"""A training step taken slowly: one hidden place is followed, and everything on its way is kept.

For pages and lessons; training itself is :mod:`bertwright.training`.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bertwright.encoder.roles import roles
from bertwright.errors import UserError
from bertwright.examples.batches import Batch
from bertwright.model.model import Model, TensorBatch
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock
from bertwright.training.recipe_batches import RecipeBatches

TABLE = "encoder.embeddings.pieces.weight"


@dataclass(frozen=True)
class Followed:
    """The hidden place that is followed: its row, its place in it, and which question it is."""

    row: int
    place: int
    question: int
    target: int


class Walk:
    """The training of a recipe in float32, with the first batch at hand.

    The recipe has one phase, which asks for hidden pieces.
    """

    def __init__(self, data: Data, recipe: Recipe) -> None:
        self.data, self.recipe = data, recipe
        self.tokenizer = data.tokenizer
        self.batches = RecipeBatches(recipe, data)
        self.clock = Clock(recipe.steps)
        self.batch: Batch = self.batches(self.clock.place(0)).micro_batches[0]
        self.model = Model.build(recipe, self.tokenizer.size, self.tokenizer)
        self.parameters = MasterParameters(self.model, roles(self.model), "float32")
        self.update = recipe.optimiser.build(self.parameters)

    @cached_property
    def followed(self) -> Followed:
        """The first place that shows [MASK] and hides a piece of more than four letters.

        Errors: UserError where there is none.
        """
        question = self.batch.questions["masked"]
        length = self.batch.pieces.shape[1]
        for number, (flat, target) in enumerate(zip(question.where, question.target, strict=True)):
            row, place = divmod(int(flat), length)
            hidden = self.batch.pieces[row, place] == self.tokenizer.specials.mask
            if hidden and len(self.piece(target).strip("#")) > 4:
                return Followed(row, place, number, int(target))
        raise UserError("the first step hides no long piece: choose another seed")

    def piece(self, number: int) -> str:
        """The written form of a piece."""
        return self.tokenizer.piece(int(number))

    def step(self, number: int) -> tuple[float, Tensor]:
        """One step of training: its mean loss, and the gradient as it was before the update."""
        place = self.clock.place(number, rows=number * self.batch.pieces.shape[0])
        step = self.batches(place)
        assert len(step.micro_batches) == 1, "the step that is followed is one batch"
        self.parameters.clear_gradient()
        moved = TensorBatch(step.micro_batches[0], "cpu")
        loss = self.model.losses(moved, self.recipe.objectives_of(0))["masked"]
        mean = loss.sum / step.counts["masked"]
        mean.backward()
        gradient = self.parameters.step_gradient().clone()
        _, factor = Clipping(self.recipe.clip)(gradient)
        self.update.step(gradient, self.recipe.schedule.at(place.middle), factor)
        return float(mean.detach()), gradient

    @torch.no_grad()
    def values(self) -> dict[str, Tensor]:
        """Everything that has a name inside the encoder, for the whole batch."""
        batch = TensorBatch(self.batch, "cpu")
        with self.model.record("*") as values:
            self.model(batch.pieces, batch.coordinates)
        return values

    @torch.no_grad()
    def probabilities(self) -> Tensor:
        """(V,) what the model answers at the place that is followed."""
        batch = TensorBatch(self.batch, "cpu")
        states = self.model(batch.pieces, batch.coordinates)
        logits = self.model.logits(states[self.followed.row, self.followed.place][None])
        return torch.softmax(logits[0], -1)

    def table_row(self) -> Tensor:
        """(D,) how the table of pieces now holds what is hidden."""
        return self.parameters.state()[TABLE][self.followed.target].clone()

    def table_gradient(self, gradient: Tensor) -> Tensor:
        """(D,) the same row of a gradient."""
        return self.parameters.views(gradient)[TABLE][self.followed.target]
