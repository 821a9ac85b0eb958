"""Texts without labels, from which a student learns what its teacher answers to them (Turc et al.
2019)."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import cast

from bertwright.errors import UserError
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import AnyExample, Example, Examples, TaggedWords
from bertwright.tasks.prediction import AT_ONCE

BORNE = ("class", "labels", "number")
"""Answers that stand beside a text."""


def answered(teacher: FineTuned, examples: Iterable[AnyExample]) -> Examples:
    """Examples with what the teacher says of them in the place of a label.

    Errors: UserError for a task whose answers no example can bear.
    """
    stream, found = iter(examples), list[AnyExample]()
    while some := list(islice(stream, AT_ONCE)):
        for example, said in zip(some, teacher.predict(some), strict=True):
            if isinstance(example, Example) and teacher.task.answer.name in BORNE:
                found.append(replace(example, label=said.answer))
            elif isinstance(example, TaggedWords):
                found.append(replace(example, tags=said.answer))
            else:
                raise UserError(
                    f"task {teacher.task.name} asks for what a text alone does not bear: there are "
                    f"no transfer texts for it"
                )
    if not found:
        raise UserError("there are no transfer texts: give some with --transfer")
    return cast(Examples, found)
