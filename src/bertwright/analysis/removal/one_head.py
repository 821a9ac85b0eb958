"""What is lost with all heads of a layer but one (Michel et al. 2019, section 3.3)."""

from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asked
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored, span_of
from bertwright.analysis.pictures import errors
from bertwright.analysis.questions import lacks_questions, questions
from bertwright.analysis.removal.gates import SITE, gated, open_gates
from bertwright.analysis.texts import lacks_halves
from bertwright.significance import benjamini_hochberg, halves, of_difference, sign_flips


class OneHead(Analysis):
    """The loss in answers where a layer keeps but one head, less that with all. The head is chosen
    by half of the texts, and the loss measured on the other half: the best of many looks better
    than it is."""

    kind: Literal["one-head"] = "one-head"
    number = "B16"
    group = "heads"
    question = "Is one head a layer enough?"
    source = "Michel et al. 2019"
    sites = (f"blocks.*.{SITE}",)

    def lacks(self, case: Case) -> str | None:
        lacking = super().lacks(case) or lacks_questions(case.subject)
        return lacking or lacks_halves(case.texts, "choose by")

    def run(self, case: Case) -> Found:
        asking, gates = questions(case), open_gates(case.subject)
        whole, (choosing, judging) = asking.asked(), halves(len(case.texts), case.seed)
        kept: list[list[Asked]] = []
        for layer, own in enumerate(gates):
            kept.append([])
            for head in range(len(own)):
                one = gates.clone()
                one[layer] = 0
                one[layer, head] = 1
                with gated(case.subject, one):
                    kept[layer].append(asking.asked())
        losses = np.array([[asked.loss for asked in of_layer] for of_layer in kept])
        best = losses[..., choosing].sum(-1).argmin(1)
        more = losses[np.arange(len(best)), best] - whole.loss
        chances = [sign_flips(of_layer[judging], seed=case.seed) for of_layer in more]
        adjusted = benjamini_hochberg(chances)
        findings: list[Finding] = []
        for layer, head in enumerate(best):
            total = whole.total[judging]
            lead = of_difference(
                (losses[layer, head, judging], total), (whole.loss[judging], total), seed=case.seed
            )
            findings.append(
                Finding(
                    "loss with this head alone, less that of all",
                    lead.value,
                    layer,
                    int(head),
                    span_of(lead),
                    lead.num_units,
                    Baseline("loss of all", float(whole.loss[judging].sum() / total.sum())),
                    chances[layer],
                    float(adjusted[layer]),
                    len(best),
                )
            )
        return Found(findings, {"losses": losses, "whole": whole.loss, "total": whole.total})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        worse = [f for f in stored.findings if f["adjusted"] < 0.05 and f["value"] > 0]
        return [
            Conclusion(
                "in most layers one head is enough",
                "in all of BERT, and in most of a translation model",
                len(worse) / len(stored.findings),
                None,
                0.5,
                "half of them lose by it",
                "below",
                num_units=stored.num_texts,
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        places = [own["layer_from_1"] for own in stored.findings]
        values = [own["value"] for own in stored.findings]
        axes.bar(places, values, yerr=errors(stored.findings))
        axes.set_xticks(
            places, [f"{own['layer_from_1']}-{own['head_from_1']}" for own in stored.findings]
        )
        axes.set_xlabel("layer, and its best head")
        axes.set_ylabel("nats lost with that head alone")
