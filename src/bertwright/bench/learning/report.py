"""What the arms say: the best of the grid, and the difference to it with its interval."""

from typing import Any

from bertwright.bench.learning.arms import Plan
from bertwright.bench.learning.running import Results
from bertwright.document import table
from bertwright.statistics import estimate, paired


def report(plan: Plan, results: Results) -> dict[str, Any]:
    """How many arms are finished, and the comparison as soon as they allow one."""
    return {"finished_arms": len(results.arms), "results": _comparisons(plan, results)}


def lines(plan: Plan, results: Results) -> list[str]:
    """The same for a document."""
    found: list[str] = []
    for result in _comparisons(plan, results):
        found += [*_difference_lines(result), ""]
    if results.has(plan.grid):
        found += _grid_lines(plan, results)
    return found


def _comparisons(plan: Plan, results: Results) -> list[dict[str, Any]]:
    """Losses of both by seed, their means and the paired difference; empty before the end."""
    if not results.has([*plan.grid, *plan.ours]):
        return []
    setting = results.best_setting(plan)
    theirs, ours = plan.theirs(setting), plan.ours
    if not results.has(theirs):
        return []
    their_losses = [results.loss(arm) for arm in theirs]
    our_losses = [results.loss(arm) for arm in ours]
    difference = paired(their_losses, our_losses)
    found = {
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
    return [found]


def _grid_lines(plan: Plan, results: Results) -> list[str]:
    """The grid as a table, the lowest loss first."""
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
    edge = ""
    if ranked[0].setting.rate in (min(plan.rates), max(plan.rates)):
        edge = " The best rate is the last on its side: one beyond it may be better."
    heading = f"The grid of the Trainer, {plan.grid_minutes:g} minutes each, seed 0.{edge}"
    return [heading, "", *table(columns, rows)]


def _difference_lines(found: dict[str, Any]) -> list[str]:
    """The comparison as a table, a row per seed, then the means and the difference."""
    pairs = zip(found["trainer_losses"], found["our_losses"], strict=True)
    rows: list[dict[str, object]] = [
        {"seed": seed, "trainer": f"{a:.3f}", "ours": f"{b:.3f}", "difference": f"{a - b:.3f}"}
        for seed, (a, b) in enumerate(pairs)
    ]
    low, high = found["interval"]
    rows.append(
        {
            "seed": "mean",
            "trainer": f"{found['trainer']:.3f}",
            "ours": f"{found['ours']:.3f}",
            "difference": f"{found['difference']:.3f} [{low:.3f}, {high:.3f}]",
        }
    )
    columns = {
        "seed": "seed",
        "trainer": f"Trainer, {found['setting']}",
        "ours": found["recipe"],
        "difference": "difference [95 %]",
    }
    return [
        f"Held-out masked loss in nats, {found['minutes']:g} minutes each; "
        f"unigram entropy {found['unigram_entropy']:.3f}:",
        "",
        *table(columns, rows),
    ]
