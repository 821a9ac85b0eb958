"""Whether the parts of a fine-tuned model that matter would learn better alone than others
(Prasanna, Rogers and Rumshisky 2020)."""

from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.dynamics.masks import LeftOut, Mask, lacks_parts, pruned
from bertwright.analysis.dynamics.runs import RUNS, over_runs
from bertwright.analysis.dynamics.tagging import SETTINGS, Tagging, lacks_tagging
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.randomness import key
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.parts import Turns, plans_of
from bertwright.tasks.task_training import unwatched

Floats = NDArray[np.float64]

WHOLE, PRUNED = "whole", "good, as it was fine-tuned"
GOOD, RANDOM, BAD = "good, trained again", "random, trained again", "bad, trained again"


class Tickets(Analysis):
    """Words whose part of speech is named right by the whole, fine-tuned; by what is left when the
    least important heads and feed-forwards go, for as long as nine tenths of the score are left,
    and more than one answer to all would have; and by this, by as many at random and by as many of
    those that went, each fine-tuned anew from the weights before. The mean of ``seeds`` runs, of
    which six can decide."""

    kind: Literal["tickets"] = "tickets"
    seeds: int = Field(default=RUNS, ge=1)
    number = "B41"
    group = "dynamics"
    question = "Do the parts that matter learn better alone than others?"
    source = "Prasanna, Rogers and Rumshisky 2020"

    def lacks(self, case: Case) -> str | None:
        return lacks_parts(case.subject) or lacks_tagging(case)

    def run(self, case: Case) -> Found:
        tagging = Tagging.of(case)
        total = tagging.total
        right: dict[str, list[Floats]] = {}
        masks: list[Mask] = []
        for seed in range(self.seeds):
            tuned = tagging.adapted(case.subject.text_model, seed, precision="float32")
            good = pruned(case.subject, tuned, tagging)
            masks.append(good)
            right.setdefault(WHOLE, []).append(tagging.right(tuned))
            with good.gating(tuned.net.encoder):
                right.setdefault(PRUNED, []).append(tagging.right(tuned))
            generator = np.random.default_rng(key(case.seed, "tickets", seed))
            for name, mask in (
                (GOOD, good),
                (RANDOM, good.drawn(generator, outside=False)),
                (BAD, good.drawn(generator, outside=True)),
            ):
                again = trained_with(case, tagging, mask, seed)
                right.setdefault(name, []).append(tagging.right(again))
        runs = {name: np.array(own) for name, own in right.items()}
        findings = [
            over_runs(name, own, total, case.seed, tagging.majority) for name, own in runs.items()
        ]
        for other in (RANDOM, BAD):
            lead = runs[GOOD] - runs[other]
            findings.append(over_runs(f"good ahead of {other}", lead, total, case.seed))
        heads = np.array([mask.heads for mask in masks])
        kept = float(np.mean([mask.share for mask in masks]))
        findings += [
            Finding("share of heads kept", kept, num_units=len(masks)),
            Finding("share of heads kept by every seed", float(heads.all(0).mean())),
        ]
        return Found(findings, {"heads": heads.mean(0), "right": np.array(list(runs.values()))})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "what matters learns better alone than as much at random",
                "0.771 against 0.679 on MRPC, 0.874 against 0.894 on SST-2",
                stored.of_all(f"good ahead of {RANDOM}"),
                0.0,
                "alike",
            ),
            concluded(
                "what matters learns better alone than as much of the rest",
                "0.773 against 0.669 on MRPC, 0.874 against 0.805 on SST-2",
                stored.of_all(f"good ahead of {BAD}"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        kept, scores = figure.subplots(1, 2)
        picture = kept.imshow(stored.arrays["heads"], vmin=0, vmax=1)
        figure.colorbar(picture, ax=kept, label="share of seeds that keep it")
        kept.set_xlabel("head")
        kept.set_ylabel("layer")
        own = [f for f in stored.findings if f["metric"] in (WHOLE, PRUNED, GOOD, RANDOM, BAD)]
        scores.barh([each["metric"] for each in reversed(own)], [e["value"] for e in reversed(own)])
        scores.set_xlabel("words named right")


def trained_with(case: Case, tagging: Tagging, mask: Mask, seed: int) -> FineTuned:
    """The model, fine-tuned with nothing but what a mask leaves."""
    chosen = FineTuning.of({**SETTINGS, "precision": "float32"})
    training = prepare_training(case.subject.text_model, [tagging.given], chosen, unwatched, None)
    own = replace(training, procedures=[LeftOut(training.net.encoder, mask)])
    plans = plans_of(own.parts, chosen.batch, seed)
    return own.run(plans, Turns.of(plans, chosen.share_power, seed), compiled=False).models[0]
