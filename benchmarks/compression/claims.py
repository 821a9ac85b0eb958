"""Claims about compression: paired differences of scores over tasks and seeds, with verdicts."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.compression.plan import CompressionClaim, CompressionPlan
from bertwright.core.statistics import Estimate
from bertwright.core.verdicts import Verdict, decide

COLUMNS = {
    "claim": "claim",
    "source": "source",
    "compared": "compared",
    "effect": "difference, points",
    "seeds": "seeds",
    "tasks": "tasks",
    "verdict": "verdict",
}
"""Columns of the table, by key."""


def evaluate_claims(
    plan: CompressionPlan, results: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a row for every claim whose variants have results.

    The unit is a seed: the mean over tasks of the difference between the first forms of two
    variants, in points. A difference below the plan's ``negligible`` points is none.
    """
    rows: list[dict[str, Any]] = []
    for claim in plan.claims:
        tasks = _scores_by_task(plan, claim.variant, claim.undistilled == "variant", results)
        others = _scores_by_task(plan, claim.above, claim.undistilled == "above", results)
        shared = [task for task in tasks if task in others]
        if not shared:
            continue
        differences = [
            100 * fmean(tasks[task][seed] - others[task][seed] for task in shared)
            for seed in range(plan.seeds)
        ]
        effect, verdict = decide(differences, claim.margin, plan.negligible)
        rows.append(_row(claim, effect, verdict, shared))
    return rows


def _scores_by_task(
    plan: CompressionPlan, variant: str, is_undistilled: bool, results: Sequence[Mapping[str, Any]]
) -> dict[str, Sequence[float]]:
    """Return the scores by task, one per seed, of the first form of a variant."""
    form = plan.variants[variant].forms[0]
    key = "undistilled" if is_undistilled else "scores"
    return {
        row["task"]: row[key]
        for row in results
        if (row["variant"], row["form"]) == (variant, form) and row[key] is not None
    }


def _row(
    claim: CompressionClaim, effect: Estimate, verdict: Verdict, tasks: Sequence[str]
) -> dict[str, Any]:
    return {
        "claim": claim.claim,
        "source": claim.source,
        "compared": claim.comparison,
        "effect": str(effect),
        "seeds": effect.num_values,
        "tasks": ", ".join(tasks),
        "verdict": f"**{verdict.text('seeds')}**",
        "label": verdict.label,
        "mean": effect.mean,
        "interval": effect.interval,
    }
