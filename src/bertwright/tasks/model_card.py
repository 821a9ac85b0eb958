"""The model card of a fine-tuned model."""

from collections.abc import Mapping
from typing import Any

from bertwright.tasks.task import Task


def model_card(recipe: str, task: Task, training: Mapping[str, Any]) -> str:
    """Return the README.md of a model with a recipe of this name, fine-tuned for a task."""
    lines = [
        f"# {recipe}, fine-tuned for {task.name}",
        "",
        f"An encoder fine-tuned with bertwright. Output type: {task.output_type.kind_name()}"
        + (f" ({len(task.labels)} labels)." if task.labels else "."),
        "",
        *(f"- {name}: {value}" for name, value in training.items() if _is_scalar(value)),
        "",
        "```python",
        "import bertwright as bw",
        "",
        'model = bw.load("this folder")',
        'predictions = model.predict(["A text."])',
        "```",
    ]
    return "\n".join(lines) + "\n"


def _is_scalar(value: Any) -> bool:
    """Return whether a value fits on a line of the model card."""
    nested = isinstance(value, list) and any(isinstance(item, dict | str) for item in value)
    return not isinstance(value, dict) and not nested
