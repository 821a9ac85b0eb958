"""The scores that ``bertwright finetune`` stored in model folders, as one table."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.files import parse_json, read_text
from bertwright.models.saving import TRAINING_FILE
from bertwright.runtime.markdown_report import format_value

COLUMNS = {
    "model": "model",
    "task": "task",
    "metric": "metric",
    "score": "score",
    "interval": "95 % interval",
    "seeds": "seeds",
    "best_epochs": "epochs of the seeds",
    "examples": "examples",
    "baseline": "best baseline",
    "baseline_score": "its score",
    "baseline_interval": "its interval",
}


def score_rows(folders: Sequence[Path]) -> list[dict[str, object]]:
    """Return a row for every metric of every model.

    The interval is over examples with one seed, and over seeds with several. Errors: UserError for
    a folder that ``finetune`` did not write.
    """
    return [row for folder in folders for row in _rows(folder)]


def _rows(folder: Path) -> Iterator[dict[str, object]]:
    file = folder / TRAINING_FILE
    training = parse_json(read_text(file), str(file), "name a folder that finetune wrote")
    if not {"task", "metrics", "scores", "intervals"} <= training.keys():
        raise UserError(f"{folder} has no stored scores: name a folder that finetune wrote")
    seeds = len(training["scores"])
    for metric, score in training["metrics"].items():
        if seeds > 1 and metric != training["metric"]:
            continue
        interval = training["interval"] if seeds > 1 else training["intervals"].get(metric)
        yield {
            "model": folder.name,
            "task": training["task"],
            "metric": metric,
            "score": training["mean"] if seeds > 1 else score,
            "interval": format_value(interval),
            "seeds": seeds,
            "best_epochs": format_value(training["best_epochs"]),
            "examples": training["examples"],
            **_best_baseline(training["baselines"], metric),
        }


def _best_baseline(baselines: Sequence[dict[str, Any]], metric: str) -> dict[str, object]:
    scored = [baseline for baseline in baselines if baseline.get(metric) is not None]
    if not scored:
        return {}
    best = max(scored, key=lambda baseline: baseline[metric])
    return {
        "baseline": best["baseline"],
        "baseline_score": best[metric],
        "baseline_interval": format_value(best.get(f"{metric}_interval")),
    }
