"""Next sentence prediction: does B follow A? (Devlin et al. 2019, section 3.1)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.encoder.encoder import EncoderChoice
from bertwright.examples.coordinates import Rows
from bertwright.examples.questions import Question, sentence_relation

from .objective import Asked, Asking, Loss, Objective, Reading


class NextSentence(Objective):
    """Ask the first place of a row whether its second segment follows the first (0) or is random
    (1). Needs an assembly of pairs."""

    kind: Literal["next-sentence"] = "next-sentence"

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, sentence_relation(rows)

    def head(self, encoder: EncoderChoice) -> nn.Module:
        return PairHead(encoder.width)

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        assert isinstance(head, PairHead)
        logits = head(reading.at(asked.where)).float()
        losses = F.cross_entropy(logits, asked.target, reduction="none")
        right = logits.argmax(-1) == asked.target
        weight = torch.ones_like(losses) if asked.weight is None else asked.weight
        return Loss((losses * weight).sum(), asked.count, (right * weight).sum())


class PairHead(nn.Module):
    """tanh pooler and two classes: (M, D) to (M, 2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 2)

    def forward(self, states: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler(states)))
