"""Features of a frozen encoder, or all of it fine-tuned (Peters, Ruder and Smith 2019)."""

from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.dynamics.runs import RUNS, over_runs
from bertwright.analysis.dynamics.tagging import SETTINGS, Floats, Tagging, lacks_tagging
from bertwright.analysis.findings import Found, Stored
from bertwright.analysis.pictures import bars
from bertwright.model.text_model import TextModel

WAYS: dict[str, dict[str, Any]] = {
    "fine-tuned": {"adaptation": "full"},
    "frozen": {
        "adaptation": "frozen",
        "head": {"kind": "bilstm", "width": 128, "depth": 1, "layers": "all", "mix": "learned"},
    },
}
"""Of frozen features a learned mix of all layers goes into an LSTM of its own, whose epochs are
cheap: it has four times as many."""

LONGER = 4


class FrozenOrTuned(Analysis):
    """Words whose part of speech is named right: with everything trained, and by a small network of
    LSTMs on states that stay as they are, all layers of them in a learned mix, each at the best of
    three rates. The mean of ``seeds`` runs, of which six can decide; half of the sentences judge,
    and choose nothing."""

    kind: Literal["frozen-or-tuned"] = "frozen-or-tuned"
    seeds: int = Field(default=RUNS, ge=1)
    epochs: int = Field(default=SETTINGS["epochs"], ge=1)
    number = "B43"
    group = "dynamics"
    question = "Does fine-tuning bring more than frozen features?"
    source = "Peters, Ruder and Smith 2019"

    def lacks(self, case: Case) -> str | None:
        if len(set(case.subject.text_model.model.recipe.encoder.widths)) > 1:
            return "its layers have several widths, which no mix can add"
        return lacks_tagging(case)

    def run(self, case: Case) -> Found:
        tagging = Tagging.of(case)
        total, own = tagging.total, case.subject.text_model
        right = {way: self._right(tagging, own, way) for way in WAYS}
        findings = [
            over_runs(way, each, total, case.seed, tagging.majority) for way, each in right.items()
        ]
        tuned, frozen = (right[way] for way in WAYS)
        lead = over_runs("fine-tuned, ahead of frozen", tuned - frozen, total, case.seed)
        findings.append(lead)
        return Found(findings, {**right, "total": total})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "fine-tuning brings more than features",
                "by 0.2 points of F1 on names, 0.0 to 6.7 on other tasks, of BERT-base",
                stored.of_all("fine-tuned, ahead of frozen"),
                0.0,
                "alike",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        found = [stored.of_all(way) for way in WAYS]
        bars(figure.subplots(), found, "words whose part of speech is named right")

    def _right(self, tagging: Tagging, model: TextModel, way: str) -> Floats:
        """Words that are right by run and sentence."""
        epochs = self.epochs * (LONGER if way == "frozen" else 1)
        settings = tagging.at_its_rate(model, {**WAYS[way], "epochs": epochs})
        runs = (tagging.adapted(model, seed, **settings) for seed in range(self.seeds))
        return np.array([tagging.right(tuned) for tuned in runs])
