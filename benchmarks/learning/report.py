"""Report: the best setting of the grid, and the difference from it with its interval."""

from typing import Any

from benchmarks.learning.arms import LearningPlan
from benchmarks.learning.compare import LearningResults
from bertwright.core.statistics import estimate, paired_difference
from bertwright.runtime.markdown_report import markdown_table


def make_report(plan: LearningPlan, results: LearningResults) -> dict[str, Any]:
    """Return the number of finished arms and, when all are finished, the comparison."""
    return {"finished_arms": len(results.arms), "results": _compare_arms(plan, results)}


def report_lines(plan: LearningPlan, results: LearningResults) -> list[str]:
    """Return the report as Markdown lines."""
    lines: list[str] = []
    for result in _compare_arms(plan, results):
        lines += [*_difference_lines(result), ""]
    if results.has(plan.grid):
        lines += _grid_lines(plan, results)
    return lines


def _compare_arms(plan: LearningPlan, results: LearningResults) -> list[dict[str, Any]]:
    """Return losses by seed, means and the paired difference; nothing for unfinished arms."""
    if not results.has([*plan.grid, *plan.bertwright_arms]):
        return []
    setting = results.best_setting(plan)
    theirs, ours = plan.trainer_arms(setting), plan.bertwright_arms
    if not results.has(theirs):
        return []
    their_losses = [results.loss(arm) for arm in theirs]
    our_losses = [results.loss(arm) for arm in ours]
    difference = paired_difference(their_losses, our_losses)
    comparison = {
        "size": plan.size,
        "setting": str(setting),
        "recipe": plan.recipe,
        "minutes": plan.minutes,
        "seeds": plan.seeds,
        "unigram_entropy": results.arms[ours[0].name]["unigram_entropy"],
        "trainer_losses": their_losses,
        "our_losses": our_losses,
        "trainer": estimate(their_losses).mean,
        "ours": estimate(our_losses).mean,
        "difference": difference.mean,
        "interval": difference.interval,
    }
    return [comparison]


def _grid_lines(plan: LearningPlan, results: LearningResults) -> list[str]:
    """Return the grid as a table, lowest loss first."""
    ranked = sorted(plan.grid, key=results.loss)
    rows = [
        {
            "setting": str(arm.setting),
            "loss": f"{results.loss(arm):.3f}",
            "steps": results.arms[arm.name]["training"]["steps"],
        }
        for arm in ranked
    ]
    columns = {"setting": "setting", "loss": "held-out masked loss", "steps": "steps"}
    warning = ""
    if ranked[0].setting.learning_rate in (min(plan.learning_rates), max(plan.learning_rates)):
        warning = " The best learning rate is at an end of the grid: one beyond may be better."
    heading = f"The grid of the Trainer, {plan.grid_minutes:g} minutes each, seed 0.{warning}"
    return [heading, "", *markdown_table(columns, rows)]


def _difference_lines(comparison: dict[str, Any]) -> list[str]:
    """Return the comparison as a table: a row per seed, then the means and the difference."""
    pairs = zip(comparison["trainer_losses"], comparison["our_losses"], strict=True)
    rows: list[dict[str, object]] = [
        {"seed": seed, "trainer": f"{a:.3f}", "ours": f"{b:.3f}", "difference": f"{a - b:.3f}"}
        for seed, (a, b) in enumerate(pairs)
    ]
    low, high = comparison["interval"]
    rows.append(
        {
            "seed": "mean",
            "trainer": f"{comparison['trainer']:.3f}",
            "ours": f"{comparison['ours']:.3f}",
            "difference": f"{comparison['difference']:.3f} [{low:.3f}, {high:.3f}]",
        }
    )
    columns = {
        "seed": "seed",
        "trainer": f"Trainer, {comparison['setting']}",
        "ours": comparison["recipe"],
        "difference": "difference [95 %]",
    }
    return [
        f"Held-out masked loss in nats, {comparison['minutes']:g} minutes each; "
        f"unigram entropy {comparison['unigram_entropy']:.3f}:",
        "",
        *markdown_table(columns, rows),
    ]
