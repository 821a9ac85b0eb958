"""The viewer's page: one file that asks the network for nothing. Numbers travel as how many steps
they are above the least of their array, deflated: most weights are small, and few of their higher
bits say anything."""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib import resources
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from bertwright.analysis.analysis import Case
from bertwright.analysis.identifiability.effective import lacks_head_outputs
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import incomparable
from bertwright.analysis.viewer.values import (
    QUERIES,
    TextValues,
    lacks_attention,
    lacks_guesses,
    set_neighbours,
    text_values,
)
from bertwright.analysis.word_states import SITES
from bertwright.errors import UserError
from bertwright.files import write_text

STEP = 2.0**-19
"""By half of which a number may be off."""

LARGEST = 2**32 - 1
"""Steps; arrays that span more of them have longer ones."""

NEURONS_AT_MOST = 500_000
"""Numbers of queries and keys that a page holds: they are most of what it weighs."""


def write_view(case: Case, out: Path, made: str, num_shown: int | None = None) -> None:
    """Write what :func:`view_page` gives."""
    write_text(out, view_page(case, made, num_shown))


def view_page(case: Case, made: str, num_shown: int | None = None) -> str:
    """The page for the first texts of the case; the words of all are neighbours. What another model
    does differently can be looked at, too, where the case has one. ``made`` says how it was.

    Errors: UserError for a model without blocks, and where the two read the texts as other pieces,
    or have other heads.
    """
    if not case.subject.num_layers:
        raise UserError(f"{case.subject.name} has no blocks: there is nothing to see inside")
    shown = replace(case, texts=case.texts[:num_shown])
    lacking = {"attention": lacks_attention(case.subject), "guesses": lacks_guesses(case.subject)}
    lacking["neurons"] = lacking["attention"] or case.subject.lacks(*QUERIES)
    places = sum(len(text) for text in shown.texts)
    width = case.subject.text_model.model.recipe.encoder.width
    if not lacking["neurons"] and 2 * places * width * case.subject.num_layers > NEURONS_AT_MOST:
        lacking["neurons"] = "with so many texts they would weigh too much: look at fewer"
    texts = text_values(shown, neurons=lacking["neurons"] is None)
    words = [] if case.subject.lacks(*SITES) else set_neighbours(case, texts)
    both = [case.subject, *([] if case.other is None else [case.other])]
    beside = [] if case.other is None else _of_other(shown, case.other)
    data = {
        "model": case.subject.name,
        "other": None if case.other is None else case.other.name,
        "layers": case.subject.num_layers,
        "heads": case.subject.num_heads,
        "lacking": lacking,
        "words": words,
        "texts": [_told(own, beside[number] if beside else {}) for number, own in enumerate(texts)],
    }
    room = resources.files("bertwright.analysis.viewer")
    parts = {
        name: room.joinpath(f"view.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(parts["html"])
    return template.render(
        subject=case.subject,
        made=made,
        lengths=all(lacks_head_outputs(own) is None for own in both),
        style=parts["css"],
        script=parts["js"],
        # Nothing in it may end the element that it stands in.
        data=json.dumps(data, ensure_ascii=False).replace("</", "<\\/"),
    )


def packed(values: NDArray[Any]) -> dict[str, Any]:
    """An array as plain data: the lowest byte of all numbers, then the next one, and no more bytes
    than they need."""
    low, span = float(values.min()), float(np.ptp(values))
    step = max(STEP, span / LARGEST)
    steps = np.round((values.astype(np.float64) - low) / step).astype("<u4")
    num_bytes = max(1, (int(steps.max()).bit_length() + 7) // 8)
    planes = np.ascontiguousarray(steps.reshape(-1, 1).view(np.uint8).T[:num_bytes])
    return {
        "shape": list(values.shape),
        "low": low,
        "step": step,
        "values": base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode(),
    }


def unpacked(told: Mapping[str, Any]) -> NDArray[np.float64]:
    """What the page reads."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(told["values"])), np.uint8)
    planes = planes.reshape(-1, prod(told["shape"]))
    steps = 256.0 ** np.arange(len(planes)) @ planes
    return (told["low"] + steps * told["step"]).reshape(told["shape"])


def _of_other(case: Case, other: Subject) -> list[dict[str, NDArray[Any]]]:
    """What another model does with every text."""
    why = incomparable(case.subject, other, case.texts)
    if why is not None:
        raise UserError(why)
    return [of.arrays for of in text_values(replace(case, subject=other), neurons=False)]


def _told(own: TextValues, beside: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    near = own.neighbours
    return {
        "pieces": own.pieces,
        "word": own.word,
        "words": own.words,
        "arrays": {name: packed(values) for name, values in own.arrays.items()},
        "other": {name: packed(values) for name, values in beside.items()},
        "guesses": [each and asdict(each) for each in own.guesses],
        "near": None if near is None else near[0].tolist(),
        "cosines": None if near is None else np.round(near[1], 4).tolist(),
    }
