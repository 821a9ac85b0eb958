"""The module that fine-tuning trains: an encoder and the head of a task."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.model.folder import fill
from bertwright.recipes import Recipe
from bertwright.tasks.heads import HeadChoice


class TaskModel(nn.Module):
    """An encoder and the head of a task."""

    def __init__(
        self,
        recipe: Recipe,
        vocabulary_size: int,
        choice: HeadChoice,
        num_outputs: int,
        rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.recipe, self.choice = recipe, choice
        self.vocabulary_size, self.num_outputs = vocabulary_size, num_outputs
        self.encoder = Encoder(recipe.encoder, vocabulary_size)
        self.head = choice.build(recipe, num_outputs, rate)

    @staticmethod
    def empty(
        recipe: Recipe,
        vocabulary_size: int,
        choice: HeadChoice,
        num_outputs: int,
        rate: float = 0.0,
    ) -> "TaskModel":
        """A model whose parameters are yet to be filled in, on the CPU."""
        with torch.device("meta"):
            model = TaskModel(recipe, vocabulary_size, choice, num_outputs, rate)
        return model.to_empty(device="cpu")

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates,
        where: Tensor | None = None,
        noise: Noise | None = None,
        first_answer: int = 0,
    ) -> Tensor:
        """pieces (B, L) int64 to float32 outputs (B, K), or (M, K) for the words at ``where``.

        ``first_answer`` is the index of the first of them in the step: what dropout hangs on.
        """
        states = self.encoder(pieces, coordinates, noise=noise)
        if noise is not None:
            first = torch.full_like(noise.first_row, first_answer)
            noise = replace(noise.within(len(self.encoder.blocks)), first_row=first)
        return self.head(states, coordinates.document, where, noise)

    def snapshot(self, parameters: Mapping[str, Tensor]) -> "TaskModel":
        """A model of its own with these parameters, on the CPU in float32."""
        other = TaskModel.empty(self.recipe, self.vocabulary_size, self.choice, self.num_outputs)
        fill(other, {**parameters, **dict(self.named_buffers())}, "snapshot")
        return other
