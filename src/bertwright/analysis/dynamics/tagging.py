"""Parts of speech as a task to adapt to: what the analyses of adaptation train on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.analysis import Case
from bertwright.analysis.findings import Baseline
from bertwright.analysis.texts import ReadText, lacks_trees
from bertwright.model.text_model import TextModel
from bertwright.significance import halves
from bertwright.tasks.catalogue import tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.treebank import Tree
from bertwright.tasks.task import Task

Floats = NDArray[np.float64]

LEAST = 10
"""Sentences."""

TASK = tagging_task("parts of speech", metrics=("accuracy",))

SETTINGS: dict[str, Any] = {"epochs": 4, "batch": 8, "calibrate": False, "compile": False}
"""Of fine-tuning, where an analysis states nothing else."""

RATES = (1, 4, 16)
"""Of which times the usual rate is tried: what is learned in few steps wants a higher one."""


@dataclass(frozen=True)
class Tagging:
    """Sentences that are learned from, those that choose the epoch, and those that judge."""

    learned: Sequence[TaggedWords]
    choosing: Sequence[TaggedWords]
    judged: Sequence[TaggedWords]

    @staticmethod
    def of(case: Case) -> "Tagging":
        """Half of the sentences judge; of the other half every fifth chooses."""
        learning, judging = halves(len(case.texts), case.seed)
        tagged = [_tagged(text) for text in case.texts]
        return Tagging(
            [tagged[n] for at, n in enumerate(learning) if at % 5],
            [tagged[n] for n in learning[::5]],
            [tagged[n] for n in judging],
        )

    @property
    def given(self) -> tuple[Task, Sequence[TaggedWords], Sequence[TaggedWords]]:
        """The task with its labels, what is learned from, and what chooses."""
        return TASK.gathered(self.learned), self.learned, self.choosing

    def adapted(self, model: TextModel, seed: int, **settings: Any) -> FineTuned:
        """The model, fine-tuned to tell parts of speech."""
        chosen: dict[str, Any] = {**SETTINGS, **settings, "seed": seed}
        return finetune(model, TASK, train=self.learned, dev=self.choosing, **chosen).model

    def at_its_rate(self, model: TextModel, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings with the rate that lets a first run tell most of the sentences that choose."""
        usual = FineTuning.of({**SETTINGS, **settings}).rate_for(model.model.recipe)
        scores: dict[float, float] = {}
        for rate in (times * usual for times in RATES):
            chosen: dict[str, Any] = {**SETTINGS, **settings, "seed": 0, "rate": rate}
            found = finetune(model, TASK, train=self.learned, dev=self.choosing, **chosen)
            scores[rate] = found.best.score
        return {**settings, "rate": max(scores, key=lambda rate: scores[rate])}

    def right(self, tuned: FineTuned) -> Floats:
        """Of each sentence that judges, how many words it has right."""
        said = [prediction.answer for prediction in tuned.predict(self.judged)]
        return np.array(
            [
                sum(a == b for a, b in zip(own.tags or (), answer, strict=True))  # type: ignore[arg-type]
                for own, answer in zip(self.judged, said, strict=True)
            ],
            np.float64,
        )

    @property
    def total(self) -> Floats:
        """How many words each of them has."""
        return np.array([len(own.words) for own in self.judged], np.float64)

    @property
    def majority(self) -> Baseline:
        """Always to say what is most frequent in what is learned from."""
        learned = [tag for own in self.learned for tag in own.tags or ()]
        names, counts = np.unique(learned, return_counts=True)
        always = str(names[counts.argmax()])
        judged = [tag for own in self.judged for tag in own.tags or ()]
        return Baseline(f"always {always}", float(np.mean([tag == always for tag in judged])))

    @property
    def most_alike(self) -> float:
        """The share of what chooses that one answer to all of it would have right, at most."""
        chosen = [tag for own in self.choosing for tag in own.tags or ()]
        _, counts = np.unique(chosen, return_counts=True)
        return float(counts.max() / counts.sum())


def lacks_tagging(case: Case) -> str | None:
    """Why nothing can be learned from the texts, in words."""
    if (lacking := lacks_trees(case.texts)) is not None:
        return lacking
    if len(case.texts) < LEAST:
        return f"it needs {LEAST} sentences or more"
    if len({tag for own in Tagging.of(case).learned for tag in own.tags or ()}) < 2:
        return "all words that it would learn from are one part of speech: give more sentences"
    return None


def _tagged(text: ReadText) -> TaggedWords:
    assert isinstance(text.source, Tree)
    return TaggedWords(text.words, text.source.tags[: len(text.words)])
