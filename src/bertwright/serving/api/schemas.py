"""Request fields and responses shared by several protocols."""

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

from bertwright.core.config import Settings
from bertwright.data.tokenization.characters import replace_lone_surrogates
from bertwright.models.text_model import FloatMatrix

TEXT_SCHEMA = {"type": "string"}
"""JSON schema of a text."""


def _as_list(value: Any) -> Any:
    """Return a single text as a list."""
    if isinstance(value, list) and value and isinstance(value[0], int | list):
        raise ValueError("holds token ids, which differ between vocabularies: send texts")
    return [value] if isinstance(value, str) else value


TextList = Annotated[
    list[str],
    FailFast(),  # listing a million errors would take seconds
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema(
        {"anyOf": [TEXT_SCHEMA, {"type": "array", "items": TEXT_SCHEMA, "minItems": 1}]}
    ),
]
"""A text or a list of texts."""


def require_encodable(text: str) -> str:
    """Return the text; raise ValueError for a lone surrogate, which UTF-8 cannot encode."""
    if replace_lone_surrogates(text) != text:
        raise ValueError(
            "a text contains a lone surrogate, which a response cannot encode: remove it"
        )
    return text


EchoedText = Annotated[str, AfterValidator(require_encodable)]
"""A text that is repeated in the response, whole or in parts."""


def _require_all_encodable(texts: list[str]) -> list[str]:
    return [require_encodable(text) for text in texts]


EchoedTexts = Annotated[TextList, AfterValidator(_require_all_encodable)]
"""Texts that are repeated in the response, whole or in parts."""


class StrictRequest(Settings):
    """The base of all requests.

    Types are strict: neither "1" nor true is a number. Fields with null count as missing.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        if isinstance(values, dict) and None in values.values():
            return {name: value for name, value in values.items() if value is not None}
        return values


class ApiRequest(StrictRequest):
    """The base of requests to a model; ``model`` is optional."""

    model: str | None = None


def json_response(content: object) -> Response:
    """Serialise NumPy arrays without validation, which would take longer than writing them."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, media_type="application/json")


def l2_normalise(vectors: FloatMatrix) -> FloatMatrix:
    """Scale vectors (N, D) to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
