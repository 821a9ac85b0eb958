"""Whether the important parts of a fine-tuned model train better on their own than others.

Prasanna, Rogers and Rumshisky (2020).
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars, HeatMap
from bertwright.analysis.core.result import AnalysisFinding, AnalysisResult, Count
from bertwright.analysis.dynamics.head_pruning import (
    PruningMask,
    PruningProcedure,
    missing_prunable_parts,
    prune_least_important,
)
from bertwright.analysis.dynamics.tagging import (
    FINE_TUNING_SETTINGS,
    NUM_RUNS,
    TaggingData,
    comparison_findings,
    missing_tagging_data,
)
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig

FULL_MODEL, PRUNED_MODEL = "full model", "good ticket, pruned"
GOOD_TICKET, RANDOM_TICKET, BAD_TICKET = (
    "good ticket, retrained",
    "random ticket, retrained",
    "bad ticket, retrained",
)
VARIANTS = (FULL_MODEL, PRUNED_MODEL, GOOD_TICKET, RANDOM_TICKET, BAD_TICKET)


class LotteryTickets(Analysis):
    """The part-of-speech accuracy of a fine-tuned model after pruning and retraining.

    Heads and feed-forward layers are pruned while nine tenths of the score remain. The remaining
    parts (the good ticket), as many random parts, and as many of the removed parts are each
    fine-tuned from the pre-trained weights. Scores are means of ``num_seeds`` runs; six are enough
    to decide.
    """

    kind: Literal["tickets"] = "tickets"
    num_seeds: int = Field(default=NUM_RUNS, ge=1)
    survey_id = "B41"
    title = "Do the important parts learn better alone than others?"
    source = "Prasanna, Rogers and Rumshisky 2020"
    requires = (missing_prunable_parts, missing_tagging_data)
    claims = (
        Claim(
            "the important parts learn better alone than as many random ones",
            "0.771 against 0.679 on MRPC, 0.874 against 0.894 on SST-2",
            f"good ticket minus {RANDOM_TICKET}",
        ),
        Claim(
            "the important parts learn better alone than as many unimportant ones",
            "0.773 against 0.669 on MRPC, 0.874 against 0.805 on SST-2",
            f"good ticket minus {BAD_TICKET}",
        ),
    )
    plots = (
        HeatMap("fraction of seeds that keep it", lambda r: r.arrays["heads"]),
        FindingBars("part-of-speech accuracy", VARIANTS),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        tagging = TaggingData.from_inputs(inputs)
        num_correct: dict[str, list[FloatArray]] = {name: [] for name in VARIANTS}
        masks: list[PruningMask] = []
        for seed in range(self.num_seeds):
            tuned = tagging.fine_tune(inputs.model.text_model, seed, precision="float32")
            good = prune_least_important(inputs.model, tuned, tagging)
            masks.append(good)
            num_correct[FULL_MODEL].append(tagging.num_correct(tuned))
            with good.gate(tuned.task_model.encoder):
                num_correct[PRUNED_MODEL].append(tagging.num_correct(tuned))
            generator = np.random.default_rng(stream_key(inputs.seed, "tickets", seed))
            for name, mask in (
                (GOOD_TICKET, good),
                (RANDOM_TICKET, good.sample_like(generator, prefer_removed=False)),
                (BAD_TICKET, good.sample_like(generator, prefer_removed=True)),
            ):
                retrained = train_ticket(inputs, tagging, mask, seed)
                num_correct[name].append(tagging.num_correct(retrained))
        runs = {name: np.array(values) for name, values in num_correct.items()}
        comparisons = {
            f"good ticket minus {other}": (GOOD_TICKET, other)
            for other in (RANDOM_TICKET, BAD_TICKET)
        }
        findings = comparison_findings(runs, comparisons, tagging, inputs.seed)
        heads = np.array([mask.heads for mask in masks])
        kept = float(np.mean([mask.kept_head_fraction for mask in masks]))
        always_kept = Count(int(heads.all(0).sum()), heads[0].size, "heads")
        findings += [
            AnalysisFinding("fraction of heads kept", kept, num_units=len(masks)),
            AnalysisFinding(
                "fraction of heads kept by every seed",
                always_kept.number / always_kept.total,
                count=always_kept,
            ),
        ]
        arrays = {"heads": heads.mean(0), "num_correct": np.array(list(runs.values()))}
        return AnalysisResult(findings, arrays)


def train_ticket(
    inputs: AnalysisInput, tagging: TaggingData, mask: PruningMask, seed: int
) -> FineTunedModel:
    """Fine-tune the model with only the parts that a mask keeps."""
    config = FineTuningConfig.from_settings({**FINE_TUNING_SETTINGS, "precision": "float32"})
    run = build_run(inputs.model.text_model, [tagging.task_data], config)
    run = replace(run, callbacks=[PruningProcedure(run.model.encoder, mask)])
    return run.run_seed(seed).models[0]
