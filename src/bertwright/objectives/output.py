"""From states to the vocabulary: the small module that names pieces."""

from typing import Literal

import torch
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.embeddings import Embeddings
from bertwright.encoder.encoder import EncoderChoice
from bertwright.encoder.feed_forward import ACTIVATIONS, Activation
from bertwright.encoder.kernels.cross_entropy import PLAIN, Pointwise, cross_entropy
from bertwright.encoder.kernels.lookup import table
from bertwright.encoder.roles import Role


class OutputChoice(Choice):
    """The axis. ``transform`` puts a dense layer, an activation and a norm before the vocabulary
    (BERT); ``bias`` is one number per piece."""

    transform: bool = True
    transform_bias: bool = True
    activation: Activation = "gelu"
    bias: bool = True

    @property
    def tied(self) -> bool:
        """Whether the tables of the embeddings name the pieces."""
        return False

    def width(self, encoder: EncoderChoice) -> int:
        """The width of what meets the table of pieces."""
        return encoder.table_width if self.transform else encoder.part_width

    def operations(self, encoder: EncoderChoice, vocabulary_size: int) -> float:
        """Floating-point operations per question."""
        width = self.width(encoder)
        transform = 2 * encoder.part_width * width if self.transform else 0
        return transform + 2 * width * vocabulary_size

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        """The module for an encoder and a vocabulary."""
        raise TypeError(f"{type(self).__name__} is an axis, not an output")


class Tied(OutputChoice):
    """Pieces are named by the table that embeds them (Press and Wolf 2017)."""

    kind: Literal["tied"] = "tied"

    @property
    def tied(self) -> bool:
        return True

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        return Output(self, encoder, vocabulary_size, table=None)


class Untied(OutputChoice):
    """Pieces are named by a table of their own."""

    kind: Literal["untied"] = "untied"

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        own = table(vocabulary_size, self.width(encoder))
        return Output(self, encoder, vocabulary_size, own)


class Transform(nn.Module):
    """dense, activation, norm: (M, D) to (M, E)."""

    def __init__(self, choice: OutputChoice, encoder: EncoderChoice) -> None:
        super().__init__()
        self.activation = choice.activation
        self.dense = nn.Linear(encoder.part_width, encoder.table_width, choice.transform_bias)
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
        self._pointwise = PLAIN

    def share(self, embeddings: Embeddings) -> None:
        """Take over what is not handed in with every call; nothing, where that is one table."""

    def logits(self, states: Tensor, embedding: Tensor) -> Tensor:
        """states (M, D) to logits (M, V)."""
        return nn.functional.linear(self.transform(states), self._own(embedding), self.bias)

    def loss(
        self, states: Tensor, embedding: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The sum of losses and of right answers at states (M, D); see ``cross_entropy``."""
        hidden = self.transform(states)
        table = self._own(embedding)
        return cross_entropy(hidden, table, self.bias, target, weight, self._pointwise)

    def compile_parts(self) -> None:
        """Compile the transform and what stands between the products of the loss."""
        self.transform.compile(dynamic=False)
        self._pointwise = Pointwise.compiled()

    def _own(self, embedding: Tensor) -> Tensor:
        return embedding if self.table is None else self.table.weight
