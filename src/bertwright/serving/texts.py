"""The fields that requests of several protocols have: texts, and what they may be."""

from typing import Annotated, Any

import numpy as np
import orjson
from fastapi import Response
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    WithJsonSchema,
    model_validator,
)

from bertwright.axes import Settings
from bertwright.model.text_model import Vectors
from bertwright.text.characters import healed

TEXT = {"type": "string"}
"""A text, as /openapi.json describes it."""


def _listed(given: Any) -> Any:
    """One text as a list of one."""
    if isinstance(given, list) and given and isinstance(given[0], int | list):
        raise ValueError("holds numbers, which name other pieces in every vocabulary: send texts")
    return [given] if isinstance(given, str) else given


Texts = Annotated[
    list[str],
    # Who sends a million numbers is told of the first: to list all takes seconds.
    FailFast(),
    BeforeValidator(_listed),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]}),
]
"""A text or a list of texts."""


def writable(text: str) -> str:
    """A text that an answer can repeat.

    Errors: ValueError for one with half of a surrogate pair, which JSON can spell: it can be read,
    as a replacement character, but not be said again.
    """
    if healed(text) != text:
        raise ValueError(
            "a text holds half of a surrogate pair, which no answer can repeat: take it out"
        )
    return text


Repeated = Annotated[str, AfterValidator(writable)]
"""A text that is said again in the answer, whole or in parts."""


def _all_writable(texts: list[str]) -> list[str]:
    return [writable(text) for text in texts]


RepeatedTexts = Annotated[Texts, AfterValidator(_all_writable)]
"""Texts that are said again in the answer, whole or in parts."""


class Asked(Settings):
    """What a request may always say: ``model``, the name of the one that is asked. A number in
    quotes is no number, and true is none either; null is said by clients that say nothing."""

    model_config = ConfigDict(strict=True)

    model: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, said: Any) -> Any:
        if isinstance(said, dict) and None in said.values():
            return {name: value for name, value in said.items() if value is not None}
        return said


def as_json(answer: object) -> Response:
    """Vectors, or what holds some, as it is: to check thousands of our own numbers, or to tell them
    by more digits than 32 bits have, would take longer than to write them."""
    said = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(said, media_type="application/json")


def unit(vectors: Vectors) -> Vectors:
    """Vectors (N, D) of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
