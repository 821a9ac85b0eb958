"""A training step in detail: one masked token is followed, and all values on its way are kept.

For documents; training itself is :mod:`bertwright.training`.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bertwright.batches.batch import Batch
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import DeviceBatch, Model
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.training.clock import TrainingClock
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.pretraining_batches import PretrainingBatches

EMBEDDING_WEIGHT = "encoder.embeddings.tokens.weight"


@dataclass(frozen=True)
class FollowedToken:
    """The masked token that is followed: its sequence, position and target."""

    sequence_index: int
    position: int
    target_index: int
    token_id: int


class FollowedRun:
    """The training of a recipe in float32, with its first batch.

    The recipe has one phase with a masked-token objective.
    """

    def __init__(self, data: Dataset, recipe: Recipe) -> None:
        self.data, self.recipe = data, recipe
        self.tokenizer = data.tokenizer
        self.batches = PretrainingBatches(recipe, data)
        self.clock = TrainingClock(recipe.steps)
        self.batch: Batch = self.batches(self.clock.progress(0)).micro_batches[0]
        self.model = Model.build(recipe, self.tokenizer.vocab_size, self.tokenizer)
        self.parameters = MasterParameters(self.model, get_parameter_roles(self.model), "float32")
        self.update = recipe.optimiser.build(self.parameters)

    @cached_property
    def token(self) -> FollowedToken:
        """The first position with [MASK] whose label has more than four letters.

        Raises UserError if there is none.
        """
        targets = self.batch.targets["masked"]
        length = self.batch.token_ids.shape[1]
        for index, (flat, label) in enumerate(zip(targets.positions, targets.labels, strict=True)):
            sequence, position = divmod(int(flat), length)
            token_id = self.batch.token_ids[sequence, position]
            is_masked = token_id == self.tokenizer.special_tokens.mask
            if is_masked and len(self.token_text(label).strip("#")) > 4:
                return FollowedToken(sequence, position, index, int(label))
        raise UserError("the first step masks no long token: choose another seed")

    def token_text(self, token_id: int) -> str:
        """Return the text of a token."""
        return self.tokenizer.id_to_token(int(token_id))

    def step(self, step_index: int) -> tuple[float, Tensor]:
        """Run one training step; return its mean loss and the gradient before the update."""
        progress = self.clock.progress(
            step_index, num_sequences=step_index * self.batch.token_ids.shape[0]
        )
        step = self.batches(progress)
        assert len(step.micro_batches) == 1, "the recipe has one micro-batch per step"
        self.parameters.zero_gradient()
        batch = DeviceBatch(step.micro_batches[0], "cpu")
        loss = self.model.losses(batch, self.recipe.objectives_of(0))["masked"]
        mean = loss.sum / step.loss_counts["masked"]
        mean.backward()
        gradient = self.parameters.step_gradient().clone()
        _, factor = GradientClipping(self.recipe.max_grad_norm)(gradient)
        self.update.step(gradient, self.recipe.schedule.at(progress.midpoint), factor)
        return float(mean.detach()), gradient

    @torch.no_grad()
    def values(self) -> dict[str, Tensor]:
        """Return all values of the encoder by tap, for the whole batch."""
        batch = DeviceBatch(self.batch, "cpu")
        with self.model.record("*") as values:
            self.model(batch.token_ids, batch.token_info)
        return values

    @torch.no_grad()
    def probabilities(self) -> Tensor:
        """Return the predicted probabilities at the followed position, (V,)."""
        batch = DeviceBatch(self.batch, "cpu")
        states = self.model(batch.token_ids, batch.token_info)
        logits = self.model.logits(states[self.token.sequence_index, self.token.position][None])
        return torch.softmax(logits[0], -1)

    def embedding(self) -> Tensor:
        """Return the embedding of the masked token, (D,)."""
        return self.parameters.state_dict()[EMBEDDING_WEIGHT][self.token.token_id].clone()

    def embedding_gradient(self, gradient: Tensor) -> Tensor:
        """Return the gradient of that embedding, (D,)."""
        return self.parameters.views(gradient)[EMBEDDING_WEIGHT][self.token.token_id]
