"""How far back a model makes use of what it reads (Khandelwal et al. 2018; Dai et al. 2019)."""

from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.model.likelihood import log_probabilities
from bertwright.model.scoring import cloze_log_probabilities
from bertwright.randomness import key
from bertwright.significance import of_difference, of_ratio

GAIN = 0.01
"""Nats that twice as much context must be worth, at the lower end of their interval, to count."""


class EffectiveContext(Analysis):
    """The loss in naming the last piece of a text given so many pieces before it and nothing else:
    1, 2, 4 and so on, up to ``longest``. The effective context is the longest that is worth
    more than half of it. Of texts that are long enough ``most`` places each are asked for."""

    kind: Literal["effective-context"] = "effective-context"
    longest: int = Field(default=64, ge=2)
    most: int = Field(default=4, ge=1)
    number = "B45"
    group = "dynamics"
    question = "How far back does a model make use of what it reads?"
    source = "Khandelwal et al. 2018; Dai et al. 2019"

    def lacks(self, case: Case) -> str | None:
        if not case.subject.text_model.names_pieces:
            return "its encoder names no pieces"
        if not any(len(_inside(text.pieces)) > self._contexts(case)[-1] for text in case.texts):
            return f"it needs texts of more than {self._contexts(case)[-1]} pieces"
        return None

    def run(self, case: Case) -> Found:
        contexts, model = self._contexts(case), case.subject.text_model.model
        special = case.subject.tokenizer.specials
        chosen: list[tuple[int, list[int]]] = []
        generator = np.random.default_rng(key(case.seed, "effective context"))
        for number, text in enumerate(case.texts):
            inside = _inside(text.pieces)
            places = np.arange(contexts[-1], len(inside))
            some = generator.permutation(places)[: self.most]
            chosen += [(number, inside[place - contexts[-1] : place + 1]) for place in some]
        texts = np.array([number for number, _ in chosen])
        names, of_text = np.unique(texts, return_inverse=True)
        total = np.bincount(of_text).astype(np.float64)
        losses = np.zeros((len(contexts), len(names)))
        for row, context in enumerate(contexts):
            rows = [[special.start, *pieces[-context - 1 :]] for _, pieces in chosen]
            if case.subject.text_model.continues:
                logs = [own[-1] for own in log_probabilities(model, rows, special.pad)]
            else:
                rows = [[*own, special.end] for own in rows]
                last = [slice(len(own) - 2, len(own) - 1) for own in rows]
                asked = cloze_log_probabilities(model, case.subject.tokenizer, rows, last)
                logs = [own[0] for own in asked]
            losses[row] = np.bincount(of_text, -np.array(logs))
        findings: list[Finding] = []
        useful = 0
        for context, loss in zip(contexts, losses, strict=True):
            interval = of_ratio(loss, total, seed=case.seed)
            findings.append(Finding.over_texts(f"loss given {context} pieces", interval))
        for number, context in enumerate(contexts[:-1]):
            gain = of_difference(
                (losses[number], total), (losses[number + 1], total), seed=case.seed
            )
            metric = f"gain of {contexts[number + 1]} pieces over {context}"
            findings.append(Finding.over_texts(metric, gain))
            if gain.low > GAIN:
                useful = contexts[number + 1]
        findings.append(Finding("effective context, pieces", useful))
        whole = of_difference((losses[0], total), (losses[-1], total), seed=case.seed)
        findings.append(Finding.over_texts("gain of the longest context over 1 piece", whole))
        return Found(findings, {"contexts": np.array(contexts), "losses": losses, "total": total})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "more context is of use",
                "up to 900 words in Transformer-XL, 500 in a recurrent network",
                stored.of_all("gain of the longest context over 1 piece"),
                0.0,
                "none",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        losses, total = stored.arrays["losses"], stored.arrays["total"]
        axes.plot(stored.arrays["contexts"], losses.sum(1) / total.sum(), marker="o")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("pieces that are seen before the one that is asked for")
        axes.set_ylabel("loss, nats")

    def _contexts(self, case: Case) -> list[int]:
        limit = case.subject.encoder.longest
        longest = min(self.longest, limit - 3 if limit else self.longest)
        return [1 << power for power in range(longest.bit_length())]


def _inside(pieces: list[int]) -> list[int]:
    """A row without the special pieces at its ends."""
    return pieces[1:-1]
