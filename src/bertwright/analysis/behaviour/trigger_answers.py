"""What is asked of texts with pieces in front of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertwright.analysis.asking import Asked, Asking, Questions
from bertwright.analysis.classifying import Classifying, labels_of, names_classes, right_classes
from bertwright.analysis.questions import lacks_questions
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText, read_texts

Trigger = tuple[int, ...]

PIECES = "hidden pieces"
"""What is asked for of a model that names no classes."""

LEAST = 4
"""Texts of a class for which a trigger is looked for."""


@dataclass(frozen=True)
class Answers:
    """Texts and what counts as right of each: the number of a class, or where there are none the
    pieces that are hidden."""

    subject: Subject
    texts: Sequence[ReadText]
    classes: Sequence[int] | None
    seed: int

    def of(self, numbers: Sequence[int]) -> "Answers":
        """Those of some texts."""
        own = self.classes
        chosen = None if own is None else [own[n] for n in numbers]
        return replace(self, texts=[self.texts[n] for n in numbers], classes=chosen)

    def behind(self, trigger: Trigger) -> Questions:
        """The same question with the trigger in front of every text."""
        texts = [put_in_front(trigger, text) for text in self.texts]
        if self.classes is None:
            return Asking(self.subject, texts, self.seed)
        return Classifying(self.subject, texts, self.seed, self.classes)

    def asked(self, trigger: Trigger) -> Asked:
        """What the answers cost with the trigger in front, and how many are right."""
        return self.behind(trigger).asked()

    def carried(self, trigger: Trigger, other: Subject) -> tuple[Trigger, "Answers"]:
        """Trigger, texts and what is right of them as another model reads them, which knows the
        same answers."""
        said = other.tokenizer.encode(self.subject.tokenizer.decode(list(trigger)))
        sources, longest = [text.source for text in self.texts], max(map(len, self.texts))
        texts = with_room(other, read_texts(other, sources, longest), len(said))
        own, others = labels_of(self.subject), labels_of(other)
        right = None if self.classes is None else [others.index(own[n]) for n in self.classes]
        return tuple(said), replace(self, subject=other, texts=texts, classes=right)


def with_room(subject: Subject, texts: Sequence[ReadText], size: int) -> Sequence[ReadText]:
    """The texts, shorter where the model could not read so many pieces before them."""
    longest = subject.encoder.longest
    if longest is None or max(map(len, texts)) + size <= longest:
        return texts
    return read_texts(subject, [text.source for text in texts], longest - size)


def put_in_front(trigger: Trigger, text: ReadText) -> ReadText:
    """A text with pieces before its first, which are no words of it."""
    at = [1] * len(trigger)
    return replace(
        text,
        pieces=[text.pieces[0], *trigger, *text.pieces[1:]],
        parts=[0] * len(trigger) + text.parts,
        word=np.insert(text.word, at, -1),
        marks={mark: np.insert(own, at, False) for mark, own in text.marks.items()},
    )


def lacks_answers(subject: Subject) -> str | None:
    """Why nothing can be asked behind a trigger, in words."""
    if not names_classes(subject) and subject.text_model.continues:
        return "it needs a model that names a class of texts, or hidden pieces"
    return lacks_questions(subject)


def carries(subject: Subject, other: Subject) -> bool:
    """Whether the other can be asked what the one is asked."""
    return lacks_answers(other) is None and set(labels_of(subject)) == set(labels_of(other))


def groups(subject: Subject, texts: Sequence[ReadText], seed: int) -> Mapping[str, Answers]:
    """The texts of every class of which there are enough; all texts where there are no classes."""
    labels = labels_of(subject)
    if not labels:
        return {PIECES: Answers(subject, texts, None, seed)}
    right = right_classes(subject, texts)
    answers = Answers(subject, texts, right, seed)
    found = {label: np.flatnonzero(np.array(right) == n) for n, label in enumerate(labels)}
    return {label: answers.of(own.tolist()) for label, own in found.items() if len(own) >= LEAST}
