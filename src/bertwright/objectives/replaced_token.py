"""Replaced token detection: is this piece the one that stood here? (Clark et al. 2020)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.encoder.feed_forward import ACTIVATIONS
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question

from .objective import Asked, Asking, Host, Loss, Objective, Reading


class ReplacedToken(Objective):
    """Ask every real place, special tokens included, whether its piece was replaced.

    It must stand before what replaces them. A guess that happens to be right is no replacement.
    """

    kind: Literal["replaced-token"] = "replaced-token"

    def misplaced(
        self, before: Mapping[str, Objective], behind: Mapping[str, Objective]
    ) -> str | None:
        return "must be the first of the objectives" if before else None

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        real = rows.real.ravel()
        where = np.arange(real.size, dtype=np.int64)
        target = rows.pieces.ravel().astype(np.int64)
        return rows, Question(where, target, real.astype(np.float32))

    def head(self, host: Host) -> nn.Module:
        return ReplacedHead(host.choice.width)

    def num_choices(self, vocabulary_size: int) -> int:
        return 2

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        assert isinstance(head, ReplacedHead)
        logits = head(reading.states.flatten(0, 1)).float()
        replaced = reading.pieces.flatten() != asked.target
        losses = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
        loss = asked.score(losses, (logits > 0) == replaced)
        return replace(loss, leaning=(logits.detach(), replaced))

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert isinstance(head, ReplacedHead)
        replaced = head(reading.at(asked.where)).float()
        return torch.stack((torch.zeros_like(replaced), replaced), dim=-1)

    def right(self, target: Tensor, seen: Tensor) -> Tensor:
        return (seen != target).long()

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return ("original", "replaced")[choice]

    def name_target(self, target: int, piece: Callable[[int], str]) -> str:
        return f"is it {piece(target)}?"


class ReplacedHead(nn.Module):
    """dense, GELU, one score: (M, D) to (M,)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, states: Tensor) -> Tensor:
        return self.out(ACTIVATIONS["gelu"](self.dense(states))).squeeze(-1)
