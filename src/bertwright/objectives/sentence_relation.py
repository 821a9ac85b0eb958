"""What is one text to another? Next sentence, sentence order, both at once; turns of a dialogue."""

from collections.abc import Callable
from typing import ClassVar, Literal

from bertwright.examples.coordinates import Relation, Rows
from bertwright.examples.questions import Question, sentence_relation

from .class_question import RowQuestion
from .objective import Asking


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
