"""Where a model is wrong: which labels it takes for which, and the examples, the surest first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bertwright.tasks.answers import ClosenessAnswer, Prediction
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.prediction_lines import as_lines
from bertwright.tasks.task import Task
from bertwright.tasks.wording import exact_match

Confusion = dict[str, dict[str, int]]
"""By what is right, how often each label was said."""


def confusion(task: Task, examples: Examples, predictions: Sequence[Prediction]) -> Confusion:
    """Of a task whose answers are classes or tags; {} for any other."""
    if task.answer.own_kind() not in ("class", "cloze", "tags"):
        return {}
    counts: Counter[tuple[str, str]] = Counter()
    for example, prediction in zip(examples, predictions, strict=True):
        right, said = task.answer.reference(example), prediction.answer
        pairs = [(right, said)] if isinstance(right, str) else zip(right, said, strict=True)  # type: ignore[arg-type]
        counts.update((str(a), str(b)) for a, b in pairs)
    found: Confusion = {}
    for (right, said), number in sorted(counts.items()):
        found.setdefault(right, {})[said] = number
    return found


def wrong(
    task: Task, examples: Examples, predictions: Sequence[Prediction]
) -> Iterator[dict[str, Any]]:
    """The examples whose answer is not the right one, with what was asked, said and right.

    Of a task of numbers all, the furthest first, on the scale of what is said.
    """
    lines = list(as_lines(examples, predictions, task))
    number = task.answer.own_kind() in ("number", "closeness", "relevance")
    highest = _highest(task, lines) if number else 1.0
    chosen = [
        (_how_far(line, highest) if number else _how_sure(line, prediction), place, line)
        for place, (line, prediction) in enumerate(zip(lines, predictions, strict=True))
        if number or not _is_right(task, line)
    ]
    for _, _, line in sorted(chosen, key=lambda each: (-each[0], each[1])):
        yield line


def _highest(task: Task, lines: Sequence[dict[str, Any]]) -> float:
    """The label that a prediction of 1 stands for, of relevance the highest that is here; of plain
    numbers 1."""
    if isinstance(task.answer, ClosenessAnswer):
        return task.answer.highest
    if task.answer.own_kind() == "relevance":
        return max([1.0, *(float(line["reference"]) for line in lines)])
    return 1.0


def _is_right(task: Task, line: dict[str, Any]) -> bool:
    right, said = line["reference"], line["prediction"]
    match task.answer.own_kind():
        case "labels":
            return set(right) == set(said)
        case "span":
            return exact_match([right], [said]) == 1.0
        case _:
            return right == said


def _how_far(line: dict[str, Any], highest: float) -> float:
    return abs(float(line["reference"]) / highest - float(line["prediction"]))


def _how_sure(line: dict[str, Any], prediction: Prediction) -> float:
    """The probability of what is wrong: of the surest tag that is, or of the surest label that is
    said or left out."""
    right, said, chances = line["reference"], prediction.answer, prediction.probabilities
    if isinstance(chances, dict) and isinstance(said, tuple):
        odd = set(right).symmetric_difference(said)
        own = {label: chances.get(label, 0.0) for label in odd}
        return max(p if label in said else 1 - p for label, p in own.items())
    if isinstance(chances, dict):
        return max(chances.values())
    if isinstance(chances, tuple) and isinstance(said, tuple):
        return max(p for tag, other, p in zip(right, said, chances, strict=True) if tag != other)
    return max(chances, default=0.0) if isinstance(chances, tuple) else float(chances or 0.0)
