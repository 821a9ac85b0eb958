"""What pre-training is worth to fine-tuning (Kovaleva et al. 2019, section 4.4)."""

from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.dynamics.runs import RUNS, over_runs
from bertwright.analysis.dynamics.tagging import SETTINGS, Tagging, lacks_tagging
from bertwright.analysis.findings import Found, Stored
from bertwright.analysis.pictures import bars

Floats = NDArray[np.float64]

AS_IT_IS, TUNED, UNTRAINED, LONGER = (
    "as it is",
    "fine-tuned",
    "untrained, fine-tuned",
    "untrained, fine-tuned three times as long",
)
LAST_ANEW, BLOCKS_ANEW = "last block anew, fine-tuned", "all blocks anew, fine-tuned"

WAYS = (AS_IT_IS, TUNED, UNTRAINED, LONGER, LAST_ANEW, BLOCKS_ANEW)


class Beginnings(Analysis):
    """Words whose part of speech is named right: by the model behind a head that has learned
    nothing, fine-tuned, fine-tuned from parameters as they are drawn, for as long and for three
    times as long, and with the last block or all of them drawn anew, each at the best of three
    rates. The mean of ``seeds`` runs, each of which draws and orders anew, and of which six can
    decide; half of the sentences judge, and choose nothing."""

    kind: Literal["beginnings"] = "beginnings"
    seeds: int = Field(default=RUNS, ge=1)
    epochs: int = Field(default=SETTINGS["epochs"], ge=1)
    number = "B40"
    group = "dynamics"
    question = "What is pre-training worth to fine-tuning?"
    source = "Kovaleva et al. 2019"

    def lacks(self, case: Case) -> str | None:
        if case.subject.text_model.model.recipe.encoder.depth.sharing != "none":
            return "its blocks share their parameters: none can begin anew"
        return lacks_tagging(case)

    def run(self, case: Case) -> Found:
        tagging = Tagging.of(case)
        total, always = tagging.total, tagging.majority
        right = {way: self._right(case, tagging, way) for way in WAYS}
        findings = [over_runs(way, own, total, case.seed, always) for way, own in right.items()]
        for better, worse in ((TUNED, UNTRAINED), (TUNED, LONGER), (UNTRAINED, AS_IT_IS)):
            lead = right[better] - right[worse]
            findings.append(over_runs(f"{better}, ahead of {worse}", lead, total, case.seed))
        return Found(findings, {"right": np.array(list(right.values())), "total": total})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        published = {
            f"{TUNED}, ahead of {UNTRAINED}": "82.3 against 68.3 on MRPC, 78.6 against 61 on MNLI",
            f"{TUNED}, ahead of {LONGER}": "a longer training does not make up for it",
            f"{UNTRAINED}, ahead of {AS_IT_IS}": "68.3 against 31.6 on MRPC",
        }
        return [
            concluded(metric, told, stored.of_all(metric), 0.0, "alike")
            for metric, told in published.items()
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        found = [stored.of_all(way) for way in WAYS]
        bars(figure.subplots(), found, "words whose part of speech is named right")

    def _right(self, case: Case, tagging: Tagging, way: str) -> Floats:
        """Words that are right by run and sentence."""
        own = case.subject
        blocks = len(own.encoder.blocks)
        settings: dict[str, Any] = {"epochs": self.epochs}
        if way == AS_IT_IS:
            settings["epochs"] = 0
        if way == LONGER:
            settings["epochs"] = 3 * self.epochs
        anew = {LAST_ANEW: 1, BLOCKS_ANEW: blocks}.get(way, 0)
        settings["adaptation"] = {"kind": "full", "reinitialised": anew}
        first = own.untrained(0) if way in (UNTRAINED, LONGER) else own
        if settings["epochs"]:
            settings = tagging.at_its_rate(first.text_model, settings)
        found: list[Floats] = []
        for seed in range(self.seeds):
            begins = own.untrained(seed) if way in (UNTRAINED, LONGER) else own
            found.append(tagging.right(tagging.adapted(begins.text_model, seed, **settings)))
        return np.array(found)
