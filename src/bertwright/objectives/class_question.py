"""Questions that are answered with one of a few classes, by every place or by a whole row."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .objective import Asked, Host, Loss, Objective, Reading


class ClassQuestion(Objective):
    """Ask every place for one of a few classes, by a score for each that is linear in its state."""

    def head(self, host: Host) -> nn.Module:
        return nn.Linear(host.choice.width, self.num_choices(host.vocabulary_size))

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        logits = self.logits(asked, reading, head)
        losses = F.cross_entropy(logits, asked.target, reduction="none")
        right = logits.argmax(-1) == asked.target
        return asked.score(losses, right)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert head is not None, "it has a head"
        return head(reading.at(asked.where)).float()


class RowQuestion(ClassQuestion):
    """Ask the first place of every row for one of a few classes."""

    def head(self, host: Host) -> nn.Module:
        return PairHead(host.choice.width, self.num_choices(host.vocabulary_size))

    def read_places(self, length: int, together: Mapping[str, Objective]) -> float:
        return 1 / length

    def places(self, asked: Asked) -> Tensor:
        return asked.where


class PairHead(nn.Module):
    """tanh pooler and a score per class: (M, D) to (M, C)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, states: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler(states)))
