"""What the arms of a study change about the published systems that they stand for.

A claim about a system is tested on that system's architecture and objective. Size and training
settings are smaller in every study; a changed architecture is named as a changed body.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bertwright.core.errors import UserError
from bertwright.recipes import Recipe
from bertwright.recipes.comparison import describe_value, differences
from bertwright.recipes.loading import PlainMapping, system_of
from bertwright.studies.study import Study

SCALE_AND_TRAINING = (
    "assembly.length",
    "assembly.alpha",
    "batch_tokens",
    "compile",
    "ema_decay",
    "encoder.depth.layers",
    "encoder.dropout",
    "encoder.embeddings.languages",
    "encoder.mixer.dropout",
    "encoder.mixer.head_width",
    "encoder.mixer.heads",
    "encoder.width",
    "max_grad_norm",
    "micro_batch_tokens",
    "optimiser",
    "phases",
    "precision",
    "schedule",
    "steps",
)
"""Settings that belong to the scale of a study or to its training, not to the body of a system."""


def body_report(study: Study) -> dict[str, Any]:
    """Return scale and training, what all arms exchange, and how each arm differs, in words.

    The keys are ``scale``, ``exchanged`` and ``arms``; an arm has its ``system`` and what it
    ``changes`` about it.
    """
    scale = _scale_of(study.changes)
    arms: dict[str, dict[str, Any]] = {}
    exchanged: dict[str, None] = {}
    for name, arm in study.arms.items():
        published, trained = Recipe.load(arm.recipe, scale), study.recipe(name, 0)
        try:
            unchanged = Recipe.load(arm.recipe, scale, arm.changes)
        except UserError:  # the arm's changes need those of the study
            unchanged = trained
        exchanged |= dict.fromkeys(_in_words(unchanged, trained))
        changes = list(_in_words(published, unchanged))
        if arm.cost != 1.0:
            changes.append(f"{arm.cost:g} times the cost")
        arms[name] = {"system": system_of(arm.recipe), "changes": changes}
    return {
        "scale": [f"{path} {describe_value(value)}" for path, value in _leaves(scale, "")],
        "exchanged": list(exchanged),
        "arms": arms,
    }


def body_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of Markdown."""
    lines = [f"Scale and training of all arms: {'; '.join(report['scale'])}."]
    if report["exchanged"]:
        lines.append(f"Body: all arms exchange {'; '.join(report['exchanged'])}.")
    else:
        lines.append("Body: that of the published systems.")
    lines.append("")
    for name, arm in report["arms"].items():
        changes = "; ".join(arm["changes"]) or "as published"
        lines.append(f"- {name}: {arm['system']}, {changes}")
    return lines


def _in_words(first: Recipe, second: Recipe) -> Iterator[str]:
    for difference in differences(first, second):
        if difference.axis not in ("seed", "steps") and not difference.axis.startswith("text."):
            yield f"{difference.axis}: {difference.first} → {difference.second}"


def _scale_of(settings: Mapping[str, Any], path: str = "") -> PlainMapping:
    """Return the settings that belong to scale and training."""
    result: PlainMapping = {}
    for name, value in settings.items():
        full = f"{path}.{name}".lstrip(".")
        if full in SCALE_AND_TRAINING:
            result[name] = value
        elif isinstance(value, Mapping) and (inner := _scale_of(value, full)):
            result[name] = inner
    return result


def _leaves(settings: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        full = f"{path}.{name}".lstrip(".")
        if isinstance(value, Mapping) and full not in SCALE_AND_TRAINING:
            yield from _leaves(value, full)
        else:
            yield full, value
