"""What is lost with one head (Michel et al. 2019, section 3.2)."""

from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored, span_of
from bertwright.analysis.questions import lacks_questions, questions
from bertwright.analysis.removal.gates import SITE, gated, open_gates
from bertwright.significance import benjamini_hochberg, of_difference, sign_flips


class SingleHeads(Analysis):
    """The loss in answers without each head, less that with all: nothing is done in the place of
    what a head writes. Tested text by text, for all heads at once."""

    kind: Literal["single-heads"] = "single-heads"
    number = "B15"
    group = "heads"
    question = "What is lost with one head?"
    source = "Michel et al. 2019"
    sites = (f"blocks.*.{SITE}",)

    def lacks(self, case: Case) -> str | None:
        return super().lacks(case) or lacks_questions(case.subject)

    def run(self, case: Case) -> Found:
        asking, gates = questions(case), open_gates(case.subject)
        whole = asking.asked()
        losses = np.zeros((*gates.shape, len(case.texts)))
        for layer, head in np.ndindex(*gates.shape):
            gates[layer, head] = 0
            with gated(case.subject, gates):
                losses[layer, head] = asking.asked().loss
            gates[layer, head] = 1
        chances = np.array(
            [sign_flips(losses[at] - whole.loss, seed=case.seed) for at in np.ndindex(*gates.shape)]
        )
        findings = [
            Finding(
                "loss without the head, less that of all",
                lead.value,
                at[0],
                at[1],
                span_of(lead),
                lead.num_units,
                Baseline("loss of all", whole.mean),
                float(chance),
                float(adjusted),
                len(chances),
            )
            for at, chance, adjusted in zip(
                np.ndindex(*gates.shape), chances, benjamini_hochberg(chances), strict=True
            )
            for lead in (
                of_difference((losses[at], whole.total), (whole.loss, whole.total), seed=case.seed),
            )
        ]
        return Found(findings, {"losses": losses, "whole": whole.loss, "total": whole.total})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        worse = np.mean([f["adjusted"] < 0.05 and f["value"] > 0 for f in stored.findings])
        better = sum(f["adjusted"] < 0.05 and f["value"] < 0 for f in stored.findings)
        return [
            Conclusion(
                "most heads can be taken away, one at a time, without a loss that shows",
                "all but 8 of 96 heads of a translation encoder",
                float(worse),
                None,
                0.5,
                "half of them show it",
                "below",
                num_units=stored.num_texts,
            ),
            Conclusion(
                "some heads are better away",
                "about half of those that matter",
                float(better),
                None,
                0,
                "none",
                num_units=stored.num_texts,
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        grid, spread = figure.subplots(1, 2)
        found = stored.grid("loss without the head, less that of all")
        most = float(np.abs(found).max())
        picture = grid.imshow(found, cmap="RdBu_r", vmin=-most, vmax=most)
        figure.colorbar(picture, ax=grid, label="nats")
        grid.set_xlabel("head")
        grid.set_ylabel("layer")
        spread.hist(found.ravel(), bins=30)
        spread.axvline(0, linestyle=":")
        spread.set_xlabel("nats lost without a head")
        spread.set_ylabel("heads")
