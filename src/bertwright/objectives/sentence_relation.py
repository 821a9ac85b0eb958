"""What is one text to another? Next sentence, sentence order, both at once; turns of a dialogue."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.examples.coordinates import Relation, Rows
from bertwright.examples.questions import Question, sentence_relation

from .objective import Asked, Asking, Host, Loss, Objective, Reading


class RowQuestion(Objective):
    """Ask the first place of every row for one of a few classes."""

    def head(self, host: Host) -> nn.Module:
        return PairHead(host.choice.width, self.num_choices(host.vocabulary_size))

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return class_loss(self.logits(asked, reading, head), asked)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert isinstance(head, PairHead)
        return head(reading.at(asked.where)).float()


def class_loss(logits: Tensor, asked: Asked) -> Loss:
    """The loss of logits (M, C) over a few classes."""
    losses = F.cross_entropy(logits, asked.target, reduction="none")
    right = logits.argmax(-1) == asked.target
    weight = torch.ones_like(losses) if asked.weight is None else asked.weight
    return Loss((losses * weight).sum(), asked.count, (right * weight).sum())


class PairQuestion(RowQuestion):
    """Ask the first place of a row what its texts are to each other, one of ``classes``. Needs an
    assembly of such rows; a row of another relation is not asked about."""

    classes: ClassVar[tuple[Relation, ...]]
    rows_asked: ClassVar[str] = "pairs: assembly.kind must be segment-pair or sentence-pair"

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        return rows, sentence_relation(rows, self.classes)

    def num_choices(self, vocabulary_size: int) -> int:
        return len(self.classes)

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return self.classes[choice]


class NextSentence(PairQuestion):
    """Does the second text follow the first (0), or is it a random one (1)?
    (Devlin et al. 2019, section 3.1)."""

    kind: Literal["next-sentence"] = "next-sentence"

    classes: ClassVar[tuple[Relation, ...]] = ("next", "random")


class SentenceOrder(PairQuestion):
    """Are two consecutive texts in order (0), or have they changed places (1)?
    (Lan et al. 2020, section 3.1)."""

    kind: Literal["sentence-order"] = "sentence-order"

    classes: ClassVar[tuple[Relation, ...]] = ("next", "previous")


class SentenceRelation(PairQuestion):
    """Is the second text the one after the first (0), a random one (1) or the one before (2)?
    (Wang et al. 2019, section 2.2)."""

    kind: Literal["sentence-relation"] = "sentence-relation"

    classes: ClassVar[tuple[Relation, ...]] = ("next", "random", "previous")


class SentenceDistance(PairQuestion):
    """Is the second text the one after the first (0), another one of its document (1), or one of
    another document (2)? (Sun et al. 2019b, section 4.2.2)."""

    kind: Literal["sentence-distance"] = "sentence-distance"

    classes: ClassVar[tuple[Relation, ...]] = ("next", "same-document", "random")


class Dialogue(PairQuestion):
    """Are these the turns of a dialogue (0), or is one of them of another (1)?
    (Sun et al. 2019, section 3.3)."""

    kind: Literal["dialogue"] = "dialogue"

    classes: ClassVar[tuple[Relation, ...]] = ("real", "fake")
    rows_asked: ClassVar[str] = "turns: assembly.kind must be dialogue, or a mixture with it"


class PairHead(nn.Module):
    """tanh pooler and a score per class: (M, D) to (M, C)."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, states: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler(states)))
