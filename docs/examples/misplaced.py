"""Shuffled words: has this piece changed its place? (Yamaguchi et al. 2021, section 2.1)."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question
from bertwright.examples.selection import Selection, Tokens
from bertwright.objectives import Objective
from bertwright.objectives.objective import Asked, Asking, Host, Loss, Reading
from bertwright.schedules import Constant


class Misplaced(Objective):
    """Pass the chosen pieces of a row on among each other, and ask every place whether its own is
    still there."""

    kind: Literal["misplaced"] = "misplaced"
    selection: Selection = Tokens(rate=Constant(value=0.1))

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        draw = asking.draw.named("misplaced")
        chosen = self.selection.select(rows, asking.vocabulary, draw, asking.progress)
        pieces = rows.pieces.copy()
        for row, where, weight in zip(pieces, chosen.where, chosen.weight, strict=True):
            places = where[weight > 0]
            row[places] = np.roll(row[places], 1)
        moved = (pieces != rows.pieces).ravel()
        counts = (rows.real & ~rows.special).ravel()
        question = Question(
            np.arange(moved.size), moved.astype(np.int64), counts.astype(np.float32)
        )
        return replace(rows, pieces=pieces), question

    def head(self, host: Host) -> nn.Module:
        return nn.Linear(host.choice.width, 2)

    def num_choices(self, vocabulary_size: int) -> int:
        return 2

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        logits = self.logits(asked, reading, head)
        losses = F.cross_entropy(logits, asked.target, reduction="none")
        return asked.score(losses, logits.argmax(-1) == asked.target)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert head is not None, "it has one"
        return head(reading.at(asked.where)).float()
