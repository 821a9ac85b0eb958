"""Predictions as lines of JSON: what was asked, what was said; and going on behind lines that an
interrupted run has kept, if they are of the same examples and of the same model."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from types import MappingProxyType
from typing import Any, cast

from bertwright.errors import UserError
from bertwright.tasks.answers import Prediction
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import (
    AnyExample,
    Example,
    Examples,
    Options,
    Question,
    TaggedWords,
)
from bertwright.tasks.formats.lines import Line, json_object
from bertwright.tasks.task import Task

CUT = "cut_pieces"
"""The key of how much of a text was not read."""

CHECKED = 64
"""Of the kept lines the last ones, which are asked again."""

ROUNDING = 0.02
"""By which a probability may differ between batches of other lengths, in 16 bits or 8."""

MAY_DIFFER = 1 / 16
"""Of the lines that are asked again; of another model more than these differ by more than that."""


def as_lines(
    examples: Examples,
    predictions: Sequence[Prediction],
    task: Task | None = None,
    num_cut: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[dict[str, Any]]:
    """What was asked, what was predicted and, where the task is given, what is right; how many
    pieces were cut from an example, by its number."""
    for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        right = {} if task is None else {"reference": task.answer.reference(example)}
        cut = {CUT: num_cut[number]} if number in num_cut else {}
        yield {**asked(example), **right, **prediction.as_dict(), **cut}


def asked(example: AnyExample) -> dict[str, Any]:
    """What stands of an example in the line of its prediction."""
    match example:
        case TaggedWords():
            return {"words": example.words}
        case Question():
            named = {"id": example.identity} if example.identity else {}
            return {**named, "question": example.question, "text": example.text}
        case Options():
            asked = {"question": example.question} if example.question else {}
            return {"text": example.first, **asked, "options": example.options}
        case Example():
            pair = {} if example.second is None else {"pair": example.second}
            return {"text": example.first, **pair}


def behind(
    kept: Iterable[Line], model: FineTuned, examples: Iterator[AnyExample]
) -> Iterator[AnyExample]:
    """The examples behind those whose predictions are kept.

    Errors: UserError where a line is of another example, or the last ones of another model.
    """
    last: deque[tuple[str, dict[str, Any], AnyExample]] = deque(maxlen=CHECKED)
    for where, line in kept:
        said, example = json_object(where, line), next(examples, None)
        if example is None or {**said, **_plain(asked(example))} != said:
            raise UserError(f"{where} is of another text: remove the file to begin anew")
        last.append((where, said, example))
    again = model.predict([example for *_, example in last]) if last else []
    differ = [
        where
        for (where, said, _), prediction in zip(last, again, strict=True)
        if not _alike(said, _plain(prediction.as_dict()))
    ]
    if len(differ) > MAY_DIFFER * len(last):
        raise UserError(
            f"{differ[0]}: this model says something else: name the one that the file is of, or "
            f"remove the file to begin anew"
        )
    return examples


def _plain(said: dict[str, Any]) -> dict[str, Any]:
    """As it comes out of a file."""
    return json.loads(json.dumps(said))


def _alike(kept: dict[str, Any], said: dict[str, Any]) -> bool:
    """Whether two models could be the same: by what they give as numbers, where they do."""
    told = "probabilities" if "probabilities" in said else "prediction"
    one, other = _leaves(kept.get(told)), _leaves(said[told])
    return one.keys() == other.keys() and all(
        isinstance(one[name], int | float)
        and isclose(one[name], value, rel_tol=ROUNDING, abs_tol=ROUNDING)
        if isinstance(value, int | float)
        else one[name] == value
        for name, value in other.items()
    )


def _leaves(said: Any) -> dict[Any, Any]:
    """By name or number; what is neither a mapping nor a list is the only one."""
    if isinstance(said, dict):
        return cast(dict[Any, Any], said)
    return dict(enumerate(cast(list[Any], said) if isinstance(said, list) else [said]))
