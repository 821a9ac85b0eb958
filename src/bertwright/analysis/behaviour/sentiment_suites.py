"""Suites for models that tell praise from blame: sentences in which it is plain what is meant."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from bertwright.analysis.behaviour.classes import Words
from bertwright.analysis.behaviour.suite import Form, Item, Suite, text_of
from bertwright.randomness import key

SLOTS = {
    "thing": "film movie book story show play song novel game picture",
    "good": "good great excellent wonderful brilliant superb fantastic lovely delightful enjoyable",
    "bad": "bad terrible awful horrible boring dreadful poor dull disappointing annoying",
    "love": "love like enjoy admire adore",
    "hate": "hate dislike detest despise loathe",
}
"""What stands in a template, and the words for it."""

KNOWN_POLES = (("positive", "negative"), ("pos", "neg"), ("good", "bad"))

PRAISE, BLAME = "I loved it .", "I hated it ."
"""What is said behind a text."""


@dataclass(frozen=True)
class Poles:
    """The labels of praise and of blame."""

    good: str
    bad: str


def poles_of(task: str, labels: Sequence[str]) -> Poles | None:
    """What the labels of a task say of themselves; those of SST-2 are numbers."""
    if task == "sst-2" and set(labels) == {"0", "1"}:
        return Poles("1", "0")
    own = {label.lower(): label for label in labels}
    for good, bad in KNOWN_POLES:
        if good in own and bad in own:
            return Poles(own[good], own[bad])
    return None


@dataclass(frozen=True)
class Plan:
    """A suite whose sentences are templates: those that praise and those that blame."""

    name: str
    capability: str
    praise: tuple[str, ...]
    blame: tuple[str, ...]

    def suite(self, poles: Poles, most: int, seed: int) -> Suite:
        """Tests of its sentences."""
        drawn = self.drawn(poles, most, seed).items()
        items = tuple(Item(text=text, label=label) for text, label in drawn)
        form: Form = "minimum functionality"
        return Suite(name=self.name, capability=self.capability, form=form, items=items)

    def drawn(self, poles: Poles, most: int, seed: int) -> dict[str, str]:
        """Sentences and their labels, as many of each template, and no sentence twice."""
        templates = [(own, poles.good) for own in self.praise]
        templates += [(own, poles.bad) for own in self.blame]
        generator = np.random.default_rng(key(seed, "suite", self.name))
        drawn = islice(cycle(templates), most)
        return {filled(own, generator): label for own, label in drawn}


PLAIN = Plan(
    "plain words",
    "words",
    ("The {thing} was {good}.", "I {love} this {thing}.", "What a {good} {thing}!"),
    ("The {thing} was {bad}.", "I {hate} this {thing}.", "What a {bad} {thing}!"),
)

PLANS = (
    PLAIN,
    Plan(
        "not good",
        "negation",
        (
            "There was nothing {bad} in this {thing}.",
            "Nobody could {hate} this {thing}.",
            "It was by no means a {bad} {thing}.",
        ),
        (
            "The {thing} was not {good}.",
            "I do not {love} this {thing}.",
            "It was by no means a {good} {thing}.",
        ),
    ),
    Plan(
        "not, far from good",
        "negation",
        ("I can not say, and I saw it more than once, that the {thing} was {bad} at all.",),
        ("I can not say, and I saw it more than once, that the {thing} was {good} at all.",),
    ),
    Plan(
        "formerly and now",
        "time",
        ("I used to {hate} this {thing}, but now I {love} it.",),
        ("I used to {love} this {thing}, but now I {hate} it.",),
    ),
    Plan(
        "others and I",
        "whose opinion",
        ("Some people {hate} this {thing}, but I {love} it.",),
        ("Some people {love} this {thing}, but I {hate} it.",),
    ),
)


def filled(template: str, generator: np.random.Generator) -> str:
    """A sentence with words that are drawn."""
    drawn = {slot: str(generator.choice(words.split())) for slot, words in SLOTS.items()}
    return template.format(**drawn)


def sentiment_suites(
    poles: Poles, whole: Sequence[Sequence[Words]], most: int, seed: int
) -> list[Suite]:
    """Those of sentences of our own, then those of texts behind which something is said."""
    return [
        *(plan.suite(poles, most, seed) for plan in PLANS),
        _stronger(poles, most, seed),
        _said_behind("praise added", PRAISE, poles.good, whole[:most]),
        _said_behind("blame added", BLAME, poles.bad, whole[:most]),
    ]


def _stronger(poles: Poles, most: int, seed: int) -> Suite:
    plain = Plan("very", "strength", ("The {thing} was {good}.",), ("The {thing} was {bad}.",))
    items = tuple(
        Item(text=text.replace("was", "was very"), before=text, label=label)
        for text, label in plain.drawn(poles, most, seed).items()
    )
    return Suite(name=plain.name, capability=plain.capability, form="direction", items=items)


def _said_behind(name: str, said: str, label: str, whole: Sequence[Sequence[Words]]) -> Suite:
    items = tuple(
        Item(
            text=text_of([*parts[:-1], [*parts[-1], *said.split()]]),
            before=text_of(parts),
            label=label,
        )
        for parts in whole
    )
    return Suite(name=name, capability="words", form="direction", items=items)
