"""From states to the vocabulary: the small module that names pieces."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.encoder import EncoderChoice
from bertwright.encoder.feed_forward import ACTIVATIONS, Activation
from bertwright.encoder.kernels.cross_entropy import PLAIN, Pointwise, cross_entropy
from bertwright.encoder.kernels.lookup import table
from bertwright.encoder.roles import Role


class OutputChoice(Choice):
    """The axis. ``transform`` puts a dense layer, an activation and a norm before the vocabulary
    (BERT); ``bias`` is one number per piece; ``z_loss`` weighs the square of log Z, which is
    added to every loss of this output while training (PaLM: 1e-4); see ``cross_entropy``."""

    transform: bool = True
    transform_bias: bool = True
    activation: Activation = "gelu"
    bias: bool = True
    z_loss: float = Field(default=0.0, ge=0.0)

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        """The module for an encoder and a vocabulary."""
        raise TypeError(f"{type(self).__name__} is an axis, not an output")


class Tied(OutputChoice):
    """Pieces are named by the table that embeds them (Press and Wolf 2017)."""

    kind: Literal["tied"] = "tied"

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        return Output(self, encoder, vocabulary_size, table=None)


class Untied(OutputChoice):
    """Pieces are named by a table of their own."""

    kind: Literal["untied"] = "untied"

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        own = table(vocabulary_size, encoder.table_width)
        return Output(self, encoder, vocabulary_size, own)


class Transform(nn.Module):
    """dense, activation, norm: (M, D) to (M, E)."""

    def __init__(self, choice: OutputChoice, encoder: EncoderChoice) -> None:
        super().__init__()
        self.activation = choice.activation
        self.dense = nn.Linear(encoder.width, encoder.table_width, choice.transform_bias)
        self.norm = encoder.norm.build(encoder.table_width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(ACTIVATIONS[self.activation](self.dense(x)))


class Output(nn.Module):
    """States at the asked places to logits, or straight to a loss.

    Where the table is tied it is handed in; it is one storage with the embedding.
    """

    parameter_roles = {"bias": Role("bias")}  # noqa: RUF012

    def __init__(
        self,
        choice: OutputChoice,
        encoder: EncoderChoice,
        vocabulary_size: int,
        table: nn.Embedding | None,
    ) -> None:
        super().__init__()
        self.transform = Transform(choice, encoder) if choice.transform else nn.Identity()
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if choice.bias else None
        self.table = table
        self.z_loss = choice.z_loss
        self._pointwise = PLAIN

    def logits(self, states: Tensor, embedding: Tensor) -> Tensor:
        """states (M, D) to logits (M, V)."""
        return nn.functional.linear(self.transform(states), self._own(embedding), self.bias)

    def loss(
        self, states: Tensor, embedding: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The sum of losses and of right answers at states (M, D); see ``cross_entropy``."""
        hidden = self.transform(states)
        table = self._own(embedding)
        return cross_entropy(hidden, table, self.bias, target, weight, self._pointwise, self.z_loss)

    def compile_parts(self) -> None:
        """Compile the transform and what stands between the products of the loss."""
        self.transform.compile(dynamic=False)
        self._pointwise = Pointwise.compiled()

    def _own(self, embedding: Tensor) -> Tensor:
        return embedding if self.table is None else self.table.weight
