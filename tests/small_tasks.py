"""Small tasks on made-up texts, each of which can be learned by heart."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from bertwright.tasks.formats.examples import Example, Options, Question, TaggedWords
from bertwright.tasks.task_training import Watch
from bertwright.training.clock import Clock, Place
from bertwright.training.reporting import Reporter

COLOURS, THINGS = ("red", "green", "blue", "brown"), ("bird", "house", "tree", "river")

TEXTS = [
    f"The {colour} {thing} is {how} and {other}"
    for colour in COLOURS
    for thing in THINGS
    for how, other in (("old", "unbelievably small"), ("new", "remarkably large"))
]

ENGLISH = " ".join(TEXTS).lower()


def classes() -> list[Example]:
    """Texts and whether they are of something old."""
    return [Example(text, label="old" if "old" in text else "new") for text in TEXTS]


def pairs() -> list[Example]:
    """Pairs of texts, and whether the second is of something old."""
    seconds = [TEXTS[(7 * number + 3) % len(TEXTS)] for number in range(len(TEXTS))]
    return [
        Example(first, second, "old" if "old" in second else "new")
        for first, second in zip(TEXTS, seconds, strict=True)
    ]


def numbers() -> list[Example]:
    """Texts with a number far from 0: which thing it is of."""
    return [Example(text, label=100.0 + 10 * THINGS.index(text.split()[2])) for text in TEXTS]


def tagged() -> list[TaggedWords]:
    """Words with their kind; a colour and its thing are a span."""
    kinds = dict.fromkeys(COLOURS, "B-THING") | dict.fromkeys(THINGS, "I-THING")
    sentences = [tuple(text.split()) for text in TEXTS]
    return [TaggedWords(words, tuple(kinds.get(w, "O") for w in words)) for words in sentences]


def several_labels() -> list[Example]:
    """Texts, and whether they are of something old, and of something red; some are neither."""

    def labels(text: str) -> tuple[str, ...]:
        return tuple(word for word in ("old", "red") if word in text.split())

    return [Example(text, label=labels(text)) for text in TEXTS]


def questions() -> list[Question]:
    """Which colour the thing of a text has; a text of a river does not say."""
    found: list[Question] = []
    for number, text in enumerate(TEXTS):
        colour, thing = text.split()[1:3]
        answers = () if thing == "river" else (colour,)
        starts = (4,) * len(answers)
        found.append(Question(f"The {thing} is", text, answers, starts, str(number)))
    return found


def options() -> list[Options]:
    """Which of two colours, or three, the thing of a text has."""
    found: list[Options] = []
    for number, text in enumerate(TEXTS):
        colour = text.split()[1]
        ways = [c for c in COLOURS if c != colour][: 1 + number % 2]
        ways.insert(number % (len(ways) + 1), colour)
        found.append(Options(text, tuple(ways), label=ways.index(colour)))
    return found


def similar() -> list[Example]:
    """Pairs of texts: 5 where the colour is the same, else 0."""
    found: list[Example] = []
    for number, text in enumerate(TEXTS):
        other = TEXTS[(number + (1 if number % 2 else 9)) % len(TEXTS)]
        same = text.split()[1] == other.split()[1]
        found.append(Example(text, other, 5.0 if same else 0.0))
    return found


def partners() -> list[Example]:
    """A thing of a colour with a text of it, and with one that is not."""
    return [
        Example(f"{colour} {thing}", f"The {colour} {thing} is", others=(f"The {thing} is",))
        for colour in COLOURS
        for thing in THINGS
    ]


def until(score: float) -> Watch:
    """Ends a run behind the epoch whose first metric is as high."""

    class Until(Reporter):
        def __init__(self, seed: int, clock: Clock) -> None:
            self.clock = clock

        def evaluation(self, place: Place, figures: Mapping[str, float]) -> None:
            if next(iter(figures.values())) >= score:
                self.clock.end(place.step)

    return Until


def assert_same_predictions(
    lines: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]
) -> None:
    """Assert that lines of ``predict`` are equal up to rounding, which depends on the batch."""
    for line, other in zip(lines, others, strict=True):
        assert {**line, "probabilities": None} == {**other, "probabilities": None}
        assert line["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
