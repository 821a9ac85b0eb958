"""Small tasks on synthetic texts, each simple enough to be memorised."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from bertwright.tasks.finetuning.run import ReporterFactory
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
)
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress, TrainingClock

COLOURS, THINGS = ("red", "green", "blue", "brown"), ("bird", "house", "tree", "river")

TEXTS = [
    f"The {colour} {thing} is {age} and {other}"
    for colour in COLOURS
    for thing in THINGS
    for age, other in (("old", "unbelievably small"), ("new", "remarkably large"))
]

ENGLISH = " ".join(TEXTS).lower()


def classes() -> list[Example]:
    """Return texts labelled old or new."""
    return [Example(text, label="old" if "old" in text else "new") for text in TEXTS]


def pairs() -> list[Example]:
    """Return text pairs, labelled old or new by the second text."""
    seconds = [TEXTS[(7 * number + 3) % len(TEXTS)] for number in range(len(TEXTS))]
    return [
        Example(first, second, "old" if "old" in second else "new")
        for first, second in zip(TEXTS, seconds, strict=True)
    ]


def numbers() -> list[Example]:
    """Return texts with a number far from 0 that depends on the thing."""
    return [Example(text, label=100.0 + 10 * THINGS.index(text.split()[2])) for text in TEXTS]


def tagged() -> list[TaggedSentence]:
    """Return tagged sentences, in which a colour and its thing form a span."""
    tags = dict.fromkeys(COLOURS, "B-THING") | dict.fromkeys(THINGS, "I-THING")
    sentences = [tuple(text.split()) for text in TEXTS]
    return [TaggedSentence(words, tuple(tags.get(w, "O") for w in words)) for words in sentences]


def attached() -> list[TaggedSentence]:
    """Return sentences with dependency heads: adjectives depend on the word before their verb."""
    heads = ("3", "3", "5", "5", "0", "5", "8", "5")
    lengths = [len(text.split()) for text in TEXTS]
    return [
        TaggedSentence(tuple(text.split()), heads[:length])
        for text, length in zip(TEXTS, lengths, strict=True)
    ]


def several_labels() -> list[Example]:
    """Return texts with the labels old and red, both, either or neither."""

    def labels(text: str) -> tuple[str, ...]:
        return tuple(word for word in ("old", "red") if word in text.split())

    return [Example(text, label=labels(text)) for text in TEXTS]


def questions() -> list[ExtractiveQuestion]:
    """Return questions about the colour of a thing; those about a river are unanswerable."""
    examples: list[ExtractiveQuestion] = []
    for number, text in enumerate(TEXTS):
        colour, thing = text.split()[1:3]
        answers = () if thing == "river" else (colour,)
        starts = (4,) * len(answers)
        examples.append(ExtractiveQuestion(f"The {thing} is", text, answers, starts, str(number)))
    return examples


def options() -> list[MultipleChoice]:
    """Return texts with two or three colours to choose from."""
    examples: list[MultipleChoice] = []
    for number, text in enumerate(TEXTS):
        colour = text.split()[1]
        choices = [c for c in COLOURS if c != colour][: 1 + number % 2]
        choices.insert(number % (len(choices) + 1), colour)
        examples.append(MultipleChoice(text, tuple(choices), label=choices.index(colour)))
    return examples


def similar() -> list[Example]:
    """Return text pairs with similarity 5 where the colours match, else 0."""
    examples: list[Example] = []
    for number, text in enumerate(TEXTS):
        other = TEXTS[(number + (1 if number % 2 else 9)) % len(TEXTS)]
        same = text.split()[1] == other.split()[1]
        examples.append(Example(text, other, 5.0 if same else 0.0))
    return examples


def partners() -> list[Example]:
    """Return queries with a matching text and a negative."""
    return [
        Example(f"{colour} {thing}", f"The {colour} {thing} is", negatives=(f"The {thing} is",))
        for colour in COLOURS
        for thing in THINGS
    ]


def until(score: float) -> ReporterFactory:
    """Stop a run after the epoch whose first metric reaches ``score``."""

    class Until(Callback):
        def __init__(self, seed: int, clock: TrainingClock) -> None:
            self.clock = clock

        def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
            if next(iter(metrics.values())) >= score:
                self.clock.stop_at(progress.step)

    return lambda seed, clock: [Until(seed, clock)]


def assert_same_predictions(
    lines: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]
) -> None:
    """Assert that lines of ``predict`` are equal up to rounding, which depends on the batch."""
    for line, other in zip(lines, others, strict=True):
        assert {**line, "probabilities": None} == {**other, "probabilities": None}
        assert line["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
