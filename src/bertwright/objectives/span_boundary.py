"""Span boundary objective: what was here, by what stands around it? (Joshi et al. 2019, 3.2)."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.feed_forward import ACTIVATIONS
from bertwright.encoder.kernels.cross_entropy import cross_entropy
from bertwright.encoder.kernels.lookup import lookup, table
from bertwright.encoder.roles import Role
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, span_boundary

from .objective import Asked, Asking, Host, Loss, Objective, Reading


class SpanBoundary(Objective):
    """Ask again for what another objective, ``of``, has hidden; the states of the two places around
    the hidden run answer, and how far into the run the place is.

    ``longest`` is how far that is counted; ``position_width`` the width of its vectors. Pieces are
    named by the table that embeds them, with a bias of their own.
    """

    kind: Literal["span-boundary"] = "span-boundary"
    shares_table: ClassVar[bool] = True
    of: str = "masked"
    longest: int = Field(default=20, ge=1, le=65_536)
    position_width: int = Field(default=200, ge=1, le=65_536)

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        if self.of in before:
            return None
        return f"asks about what {self.of!r} hides: list {self.of!r} before it"

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, span_boundary(rows, asking.before[self.of], self.longest)

    def head(self, host: Host) -> nn.Module:
        width = self.position_width
        return BoundaryHead(host.choice, host.vocabulary_size, self.longest, width)

    def read_places(self, length: int, together: Mapping[str, Objective]) -> float:
        return 2 * together[self.of].per_place(length)

    def head_operations(
        self,
        encoder: EncoderChoice,
        vocabulary_size: int,
        length: int,
        together: Mapping[str, Objective],
    ) -> float:
        width, narrow = encoder.width, encoder.table_width
        dense = (2 * width + self.position_width) * width + width * narrow
        return together[self.of].per_place(length) * 2 * (dense + narrow * vocabulary_size)

    def places(self, asked: Asked) -> Tensor:
        return torch.cat((asked.beside["left"], asked.beside["right"]))

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        assert isinstance(head, BoundaryHead)
        hidden = self._hidden(asked, reading, head)
        table = reading.embedding
        loss, correct = cross_entropy(hidden, table, head.bias, asked.target, asked.weight)
        return Loss(loss, asked.count, correct)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert isinstance(head, BoundaryHead)
        return nn.functional.linear(
            self._hidden(asked, reading, head), reading.embedding, head.bias
        )

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return piece(choice)

    def _hidden(self, asked: Asked, reading: Reading, head: "BoundaryHead") -> Tensor:
        left, right = reading.at(asked.beside["left"]), reading.at(asked.beside["right"])
        return head(left, right, asked.beside["offset"])


class BoundaryHead(nn.Module):
    """Two dense layers with GELU and norm over [left; right; position]: (M, D) twice to (M, E)."""

    parameter_roles: ClassVar[dict[str, Role]] = {"bias": Role("bias")}

    def __init__(
        self, encoder: EncoderChoice, vocabulary_size: int, longest: int, position_width: int
    ) -> None:
        super().__init__()
        narrow = encoder.table_width
        self.positions = table(longest, position_width)
        self.first = nn.Linear(2 * encoder.width + position_width, encoder.width)
        self.first_norm = encoder.norm.build(encoder.width)
        self.second = nn.Linear(encoder.width, narrow)
        self.second_norm = encoder.norm.build(narrow)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, left: Tensor, right: Tensor, offset: Tensor) -> Tensor:
        position = lookup(self.positions.weight, offset)
        joined = torch.cat((left, right, position.to(left.dtype)), dim=-1)
        hidden = self.first_norm(ACTIVATIONS["gelu"](self.first(joined)))
        return self.second_norm(ACTIVATIONS["gelu"](self.second(hidden)))
