"""A few pieces that spoil the answers to all texts alike (Wallace et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asked
from bertwright.analysis.behaviour.trigger_answers import (
    LEAST,
    PIECES,
    Answers,
    Trigger,
    carries,
    groups,
    labels_of,
    lacks_answers,
    with_room,
)
from bertwright.analysis.behaviour.trigger_search import (
    Search,
    allowed_pieces,
    most_frequent,
    vectors_of_pieces,
)
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored, span_of
from bertwright.analysis.subject import Subject
from bertwright.randomness import key
from bertwright.significance import Interval, halves, of_difference, of_ratio

RIGHT, CARRIED = "right with the trigger, ", "right of the other model with the trigger, "


class Triggers(Analysis):
    """``size`` pieces in front of every text of a class, found on one half of these texts so that
    the class is named no more, and judged on the other; beside them ``random`` triggers of as many
    pieces. What is right is the label of a text, or what the model says of it by itself. The search
    begins with the most frequent piece of the texts and goes ``steps`` times over the places of the
    trigger, each time with ``texts`` that are drawn and ``candidates`` for a place. A model that
    names hidden pieces is kept from naming those of all texts. Another model of the same answers is
    asked behind the same triggers."""

    kind: Literal["triggers"] = "triggers"
    size: int = Field(default=3, ge=1)
    steps: int = Field(default=3, ge=1)
    candidates: int = Field(default=15, ge=1)
    texts: int = Field(default=32, ge=1)
    random: int = Field(default=20, ge=1)
    number = "B32"
    of_two = True
    group = "behaviour"
    question = "Are there a few pieces that spoil the answer to any text?"
    source = "Wallace et al. 2019"

    def lacks(self, case: Case) -> str | None:
        if (lacking := lacks_answers(case.subject)) is not None:
            return lacking
        least = LEAST * len(labels_of(case.subject) or [PIECES])
        return f"it needs {least} texts or more" if len(case.texts) < least else None

    def run(self, case: Case) -> Found:
        subject = case.subject
        texts = with_room(subject, case.texts, self.size)
        of_each = groups(subject, texts, case.seed)
        allowed = allowed_pieces(subject, {name.lower() for name in of_each})
        search = Search(vectors_of_pieces(subject), allowed, self.candidates)
        told = [self._told(name, own, search, case.seed) for name, own in of_each.items()]
        findings = [finding for own in told for finding in own.findings(case.seed)]
        if case.other is not None and carries(subject, case.other):
            findings += [own.carried(case.other, case.seed) for own in told]
        found, random = together([own.last for own in told]), together([own.random for own in told])
        spoiled, cost = right_lead(random, found, case.seed), loss_lead(found, random, case.seed)
        findings.append(Finding.over_texts("right, random triggers less found ones", spoiled))
        findings.append(Finding.over_texts("loss, found triggers less random ones", cost))
        return Found(
            findings,
            {
                "by step": np.array([[step.share for step in own.steps] for own in told]),
                "random": np.array([own.random.share for own in told]),
            },
        )

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "pieces that gradients find spoil more answers than random ones",
                "of entailments of SNLI 89.9 % are right, with one word in front 0.6 %",
                stored.of_all("right, random triggers less found ones"),
                0.0,
                "alike",
            ),
            concluded(
                "they cost more on texts that they were not found on",
                "universal: found on some texts, they hold for all",
                stored.of_all("loss, found triggers less random ones"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = [found for found in stored.findings if found["metric"].startswith(RIGHT)]
        curves = zip(own, stored.arrays["by step"], stored.arrays["random"], strict=True)
        for number, (found, steps, random) in enumerate(curves):
            name = f"{found['metric'].removeprefix(RIGHT)}: {found['note']}"
            axes.plot(steps, f"C{number}o-", label=name.replace("$", r"\$"))
            axes.axhline(random, color=f"C{number}", linestyle=":")
        axes.set_ylim(0, 1.02)
        axes.set_xticks(range(stored.arrays["by step"].shape[1]))
        axes.set_xlabel("steps of the search; dotted: random triggers")
        axes.set_ylabel("share of right answers on the other half")
        axes.legend()

    def _told(self, name: str, answers: Answers, search: Search, seed: int) -> "Told":
        chosen, judged = halves(len(answers.texts), seed)
        finding, judging = answers.of(chosen.tolist()), answers.of(judged.tolist())
        generator = np.random.default_rng(key(seed, "triggers", name))
        trigger = (most_frequent(finding.texts, search),) * self.size
        steps = [judging.asked(trigger)]
        for _ in range(self.steps):
            some = generator.permutation(len(chosen))[: self.texts]
            trigger = search.step(finding.of(some.tolist()), trigger)
            steps.append(judging.asked(trigger))
        random = [judging.asked(search.drawn(self.size, generator)) for _ in range(self.random)]
        return Told(name, trigger, judging, judging.asked(()), steps, _mean(random))


@dataclass(frozen=True)
class Told:
    """What became of the texts of a class that did not choose their trigger: without one, with what
    each step had found, with random ones."""

    name: str
    trigger: Trigger
    judging: Answers
    bare: Asked
    steps: Sequence[Asked]
    random: Asked

    @property
    def last(self) -> Asked:
        """With the trigger that was found."""
        return self.steps[-1]

    def findings(self, seed: int) -> list[Finding]:
        """Right answers, and what they cost."""
        last, lead = self.last, right_lead(self.last, self.random, seed)
        tokenizer = self.judging.subject.tokenizer
        said = " ".join(tokenizer.piece(piece) for piece in self.trigger)
        right, bare = (of_ratio(own.right, own.total, seed=seed) for own in (last, self.bare))
        loss = of_ratio(last.loss, last.total, seed=seed)
        shares = Baseline("random triggers", self.random.share)
        costs = Baseline("random triggers", self.random.mean)
        with_it = Finding.over_texts(f"{RIGHT}{self.name}", right, baseline=shares)
        return [
            replace(with_it, note=said, lead=span_of(lead)),
            Finding.over_texts(f"right without a trigger, {self.name}", bare),
            Finding.over_texts(f"loss with the trigger, {self.name}", loss, baseline=costs),
        ]

    def carried(self, other: Subject, seed: int) -> Finding:
        """Right answers of another model behind the same trigger, as that model reads it."""
        trigger, answers = self.judging.carried(self.trigger, other)
        behind, bare = answers.asked(trigger), answers.asked(())
        share, lead = (
            of_ratio(behind.right, behind.total, seed=seed),
            right_lead(behind, bare, seed),
        )
        without = Baseline("without a trigger", bare.share)
        found = Finding.over_texts(f"{CARRIED}{self.name}", share, baseline=without)
        return replace(found, lead=span_of(lead), note=other.name)


def together(several: Sequence[Asked]) -> Asked:
    """The answers to all these texts."""
    return Asked(*np.concatenate([(own.loss, own.right, own.total) for own in several], 1))


def right_lead(first: Asked, second: Asked, seed: int) -> Interval:
    """By how much more of the first answers are right."""
    return of_difference((first.right, first.total), (second.right, second.total), seed=seed)


def loss_lead(first: Asked, second: Asked, seed: int) -> Interval:
    """By how much more the first answers cost."""
    return of_difference((first.loss, first.total), (second.loss, second.total), seed=seed)


def _mean(several: Sequence[Asked]) -> Asked:
    return Asked(*np.mean([(own.loss, own.right, own.total) for own in several], 0))
