"""Suites for sentiment models: sentences with an obvious sentiment."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

import numpy as np

from bertwright.analysis.behaviour.checklist.suite import (
    BehaviouralSuite,
    SuiteForm,
    SuiteItem,
    join_parts,
)
from bertwright.analysis.behaviour.classification import PartWords
from bertwright.core.rng import stream_key

SLOTS = {
    "thing": "film movie book story show play song novel game picture",
    "good": "good great excellent wonderful brilliant superb fantastic lovely delightful enjoyable",
    "bad": "bad terrible awful horrible boring dreadful poor dull disappointing annoying",
    "love": "love like enjoy admire adore",
    "hate": "hate dislike detest despise loathe",
}
"""Words that fill the slots of templates."""

KNOWN_SENTIMENT_LABELS = (("positive", "negative"), ("pos", "neg"), ("good", "bad"))

PRAISE, BLAME = "I loved it .", "I hated it ."
"""Sentences that are appended to texts."""


@dataclass(frozen=True)
class SentimentLabels:
    """The labels of positive and negative sentiment."""

    positive: str
    negative: str


def sentiment_labels(task_name: str, labels: Sequence[str]) -> SentimentLabels | None:
    """Return the sentiment labels of a task; None unless it is SST-2 or the names are known."""
    if task_name == "sst-2" and set(labels) == {"0", "1"}:
        return SentimentLabels("1", "0")
    known = {label.lower(): label for label in labels}
    for positive, negative in KNOWN_SENTIMENT_LABELS:
        if positive in known and negative in known:
            return SentimentLabels(known[positive], known[negative])
    return None


@dataclass(frozen=True)
class SuiteTemplate:
    """A suite generated from templates of positive and negative sentences."""

    name: str
    capability: str
    praise: tuple[str, ...]
    blame: tuple[str, ...]

    def build_suite(self, labels: SentimentLabels, max_items: int, seed: int) -> BehaviouralSuite:
        """Build the suite."""
        sentences = self.sample_sentences(labels, max_items, seed).items()
        items = tuple(SuiteItem(text=text, label=label) for text, label in sentences)
        form: SuiteForm = "minimum functionality"
        return BehaviouralSuite(name=self.name, capability=self.capability, form=form, items=items)

    def sample_sentences(
        self, labels: SentimentLabels, max_items: int, seed: int
    ) -> dict[str, str]:
        """Sample distinct sentences with their labels, equally many per template."""
        templates = [(template, labels.positive) for template in self.praise]
        templates += [(template, labels.negative) for template in self.blame]
        generator = np.random.default_rng(stream_key(seed, "suite", self.name))
        sample = islice(cycle(templates), max_items)
        return {fill_template(template, generator): label for template, label in sample}


PLAIN_SENTIMENT = SuiteTemplate(
    "plain words",
    "words",
    ("The {thing} was {good}.", "I {love} this {thing}.", "What a {good} {thing}!"),
    ("The {thing} was {bad}.", "I {hate} this {thing}.", "What a {bad} {thing}!"),
)

SENTIMENT_TEMPLATES = (
    PLAIN_SENTIMENT,
    SuiteTemplate(
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
    SuiteTemplate(
        "not, far from good",
        "negation",
        ("I can not say, and I saw it more than once, that the {thing} was {bad} at all.",),
        ("I can not say, and I saw it more than once, that the {thing} was {good} at all.",),
    ),
    SuiteTemplate(
        "formerly and now",
        "time",
        ("I used to {hate} this {thing}, but now I {love} it.",),
        ("I used to {love} this {thing}, but now I {hate} it.",),
    ),
    SuiteTemplate(
        "others and I",
        "whose opinion",
        ("Some people {hate} this {thing}, but I {love} it.",),
        ("Some people {love} this {thing}, but I {hate} it.",),
    ),
)


def fill_template(template: str, generator: np.random.Generator) -> str:
    """Fill a template with random words."""
    words_by_slot = {slot: str(generator.choice(words.split())) for slot, words in SLOTS.items()}
    return template.format(**words_by_slot)


def sentiment_suites(
    labels: SentimentLabels, text_parts: Sequence[Sequence[PartWords]], max_items: int, seed: int
) -> list[BehaviouralSuite]:
    """Build the template suites, and the suites with appended sentences."""
    return [
        *(template.build_suite(labels, max_items, seed) for template in SENTIMENT_TEMPLATES),
        _intensifier_suite(labels, max_items, seed),
        _appended_sentence_suite("praise added", PRAISE, labels.positive, text_parts[:max_items]),
        _appended_sentence_suite("blame added", BLAME, labels.negative, text_parts[:max_items]),
    ]


def _intensifier_suite(labels: SentimentLabels, max_items: int, seed: int) -> BehaviouralSuite:
    plain = SuiteTemplate(
        "very", "strength", ("The {thing} was {good}.",), ("The {thing} was {bad}.",)
    )
    items = tuple(
        SuiteItem(text=text.replace("was", "was very"), original_text=text, label=label)
        for text, label in plain.sample_sentences(labels, max_items, seed).items()
    )
    return BehaviouralSuite(
        name=plain.name, capability=plain.capability, form="direction", items=items
    )


def _appended_sentence_suite(
    name: str, sentence: str, label: str, text_parts: Sequence[Sequence[PartWords]]
) -> BehaviouralSuite:
    items = tuple(
        SuiteItem(
            text=join_parts([*parts[:-1], [*parts[-1], *sentence.split()]]),
            original_text=join_parts(parts),
            label=label,
        )
        for parts in text_parts
    )
    return BehaviouralSuite(name=name, capability="words", form="direction", items=items)
