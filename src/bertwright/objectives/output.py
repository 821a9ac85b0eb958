"""From states to the vocabulary: the small module that names pieces."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.embeddings import Embeddings
from bertwright.encoder.feed_forward import ACTIVATIONS, Activation
from bertwright.encoder.kernels.cross_entropy import PLAIN, Pointwise, cross_entropy
from bertwright.encoder.kernels.lookup import table
from bertwright.encoder.norms import Norm
from bertwright.encoder.roles import Role
from bertwright.errors import UserError


class OutputChoice(Choice):
    """The axis. ``transform`` puts a dense layer, an activation and a norm before the vocabulary
    (BERT), ``norm`` being that of the encoder unless it is stated; ``bias`` is one number per
    piece. ``scaled`` divides the states by the root of the width, for a tied table of large vectors
    (Raffel et al. 2020). While training, ``z_loss`` weighs the square of log Z, which is added to
    every loss of this output (PaLM: 1e-4), and ``smoothing`` is the share of every target that all
    pieces have alike (Vaswani et al. 2017, section 5.4: 0.1); see ``cross_entropy``."""

    transform: bool = True
    transform_bias: bool = True
    activation: Activation = "gelu"
    norm: Norm | None = None
    bias: bool = True
    scaled: bool = False
    z_loss: float = Field(default=0.0, ge=0.0)
    smoothing: float = Field(default=0.0, ge=0.0, lt=1.0)

    @property
    def tied(self) -> bool:
        """Whether the tables of the embeddings name the pieces, alone or beside others."""
        return False

    def width(self, encoder: EncoderChoice) -> int:
        """The width at which pieces are named."""
        return encoder.table_width if self.transform else encoder.part_width

    def own_width(self, encoder: EncoderChoice) -> int:
        """How much of it is met by tables of its own."""
        return 0 if self.tied else self.width(encoder)

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
        own = table(vocabulary_size, self.own_width(encoder))
        return Output(self, encoder, vocabulary_size, own)


class Extended(OutputChoice):
    """Pieces are named at the full width of the encoder: by the narrow table that embeds them, and
    beside it by one of their own (Sun et al. 2020)."""

    kind: Literal["extended"] = "extended"

    @property
    def tied(self) -> bool:
        return True

    def width(self, encoder: EncoderChoice) -> int:
        return encoder.part_width

    def own_width(self, encoder: EncoderChoice) -> int:
        return encoder.part_width - encoder.table_width

    def build(self, encoder: EncoderChoice, vocabulary_size: int) -> "Output":
        own = self.own_width(encoder)
        if own < 1:
            raise UserError(
                "output.kind=extended needs a table of pieces that is narrower than the encoder: "
                "set a smaller encoder.embeddings.width, or output.kind=tied"
            )
        return ExtendedOutput(self, encoder, vocabulary_size, table(vocabulary_size, own))


class Transform(nn.Module):
    """dense, activation, norm: (M, D) to (M, E)."""

    def __init__(self, choice: OutputChoice, encoder: EncoderChoice) -> None:
        super().__init__()
        width = choice.width(encoder)
        self.activation = choice.activation
        self.dense = nn.Linear(encoder.part_width, width, choice.transform_bias)
        self.norm = (choice.norm or encoder.norm).build(width)

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
        self.scale = choice.width(encoder) ** -0.5 if choice.scaled else 1.0
        self.z_loss, self.smoothing = choice.z_loss, choice.smoothing
        self.num_rows = vocabulary_size
        self.without_token: Tensor | None = None
        self._pointwise = PLAIN

    def share(self, embeddings: Embeddings) -> None:
        """Take over what is not handed in with every call; nothing, where that is one table."""

    def keep_tokens(self, ids: Tensor) -> None:
        """Predict no rows of the table but ``ids`` (N,): the others stand for no token."""
        without_token = torch.ones(self.num_rows, dtype=torch.bool)
        without_token[ids[ids < self.num_rows]] = False
        self.without_token = without_token if without_token.any() else None

    def logits(self, states: Tensor, embedding: Tensor) -> Tensor:
        """states (M, D) to logits (M, V), -inf for rows of the table without a token."""
        logits = self.row_logits(states, embedding)
        if self.without_token is None:
            return logits
        return logits.masked_fill(self.without_token.to(logits.device), -torch.inf)

    def row_logits(self, states: Tensor, embedding: Tensor) -> Tensor:
        """states (M, D) to logits (M, V) of all rows of the table."""
        return nn.functional.linear(self._hidden(states), self._own(embedding), self.bias)

    def loss(
        self, states: Tensor, embedding: Tensor, target: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The sum of losses and of right answers at states (M, D); see ``cross_entropy``.

        Where no gradient is asked for, rows of the table without a token have no part in it.
        """
        hidden, table, bias = self._hidden(states), self._own(embedding), self.bias
        if self.without_token is not None and not torch.is_grad_enabled():
            zeros = table.new_zeros(len(table)) if bias is None else bias
            bias = zeros.masked_fill(self.without_token.to(zeros.device), -torch.inf)
        added = self.z_loss, self.smoothing
        return cross_entropy(hidden, table, bias, target, weight, self._pointwise, *added)

    def compile_parts(self) -> None:
        """Compile the transform and what stands between the products of the loss."""
        self.transform.compile(dynamic=False)
        self._pointwise = Pointwise.compiled()

    def of_pieces(self, pieces: Tensor, embedding: Tensor) -> tuple[Tensor, Tensor]:
        """What the logits of pieces (N,) are made with: weights (N, W) and biases (N,)."""
        bias = embedding.new_zeros(len(pieces)) if self.bias is None else self.bias[pieces]
        return self._own(embedding)[pieces], bias

    def _hidden(self, states: Tensor) -> Tensor:
        hidden: Tensor = self.transform(states)
        return hidden if self.scale == 1.0 else hidden * self.scale

    def _own(self, embedding: Tensor) -> Tensor:
        return embedding if self.table is None else self.table.weight


class ExtendedOutput(Output):
    """The embedding (V, E) and a table (V, D - E), side by side."""

    def _own(self, embedding: Tensor) -> Tensor:
        assert self.table is not None
        return torch.cat((embedding, self.table.weight), dim=1)
