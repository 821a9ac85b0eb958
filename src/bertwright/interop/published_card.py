"""The model card of an export: what was measured about the model, and its name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from bertwright.core.files import parse_json, read_text, write_text
from bertwright.models.saving import CARD_FILE, TRAINING_FILE
from bertwright.runtime.markdown_report import format_value, markdown_table

HEADING = "## Measured"

COLUMNS = {"measure": "measure", "value": "value", "interval": "95 % interval"}

COSTS = ("steps", "tokens", "seconds", "training_examples", "hardware")
"""Keys of the training record that state the cost of the training."""


CARD_FOLDER = '"this folder"'
"""The model in the examples of a card, before it has a name."""


def name_repository(folder: Path, repository: str) -> None:
    """Name the repository of a folder in the examples of its model card."""
    card = folder / CARD_FILE
    if card.is_file():
        text = card.read_text(encoding="utf-8")
        write_text(card, text.replace(CARD_FOLDER, f'"{repository}"'))


def add_measurements(folder: Path, source: Path, max_difference: float | None = None) -> None:
    """Add what was measured about the model in ``source`` to the model card of its export.

    This is its scores with their intervals and baselines, or its losses; the cost of its training;
    and ``max_difference``, the largest difference of the export's outputs. A card without any is
    left as it is.
    """
    record, card = _read_training_record(source), folder / CARD_FILE
    rows = [*_scores(record), *_losses(record), *_costs(record)]
    if max_difference is not None:
        rows.append({"measure": "largest difference of the outputs", "value": max_difference})
    if rows and card.is_file():
        lines = [card.read_text(encoding="utf-8"), HEADING, "", *markdown_table(COLUMNS, rows)]
        write_text(card, "\n".join([*lines, *_notes(record)]) + "\n")


def _read_training_record(source: Path) -> Mapping[str, Any]:
    """Return the content of training.json; {} for a model of another library."""
    file = source / TRAINING_FILE
    if not file.is_file():
        return {}
    record = parse_json(read_text(file), str(file), "copy it again")
    return cast(Mapping[str, Any], record) if isinstance(record, dict) else {}


def _scores(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the scores of a fine-tuned model and of its baselines."""
    metrics, task = record.get("metrics"), record.get("task")
    if not isinstance(metrics, Mapping):
        return
    names = list(cast(Mapping[str, float], metrics))
    scores = [("", metrics, record.get("intervals", {}))] + [
        (f", {b['baseline']}", b, {name: b.get(f"{name}_interval") for name in names})
        for b in record.get("baselines", ())
    ]
    for name, values, limits in scores:
        for metric in names:
            if metric in values:
                yield {
                    "measure": f"{metric} of {task}{name}",
                    "value": values[metric],
                    "interval": _format_interval(limits.get(metric)),
                }
    seeds = len(record.get("scores", ()))
    if seeds > 1:
        yield {
            "measure": f"{record['metric']} of {task}, mean of {seeds} seeds",
            "value": record["mean"],
            "interval": _format_interval(record["interval"]),
        }


def _losses(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of a pre-trained model on held-out text."""
    for name, value in record.get("result", {}).items():
        if isinstance(value, int | float):
            yield {"measure": f"{name.replace('_', ' ')}, held-out text", "value": value}


def _costs(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in COSTS:
        if record.get(name) is not None:
            yield {"measure": f"training: {name.replace('_', ' ')}", "value": record[name]}


def _notes(record: Mapping[str, Any]) -> list[str]:
    """Return the number of examples, the warnings and the versions."""
    examples, versions = record.get("held_out_examples"), record.get("versions", {})
    notes = [f"The scores are of {examples:,} held-out examples."] if examples else []
    notes += [f"Warning: {warning}." for warning in record.get("warnings", ())]
    if versions:
        notes.append("Versions: " + ", ".join(f"{n} {v}" for n, v in versions.items()) + ".")
    return [line for note in notes for line in ("", note)]


def _format_interval(interval: Any) -> str | None:
    if not interval:
        return None
    low, high = interval
    return f"{format_value(low)} to {format_value(high)}"
