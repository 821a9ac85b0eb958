"""The viewer's page, a single self-contained HTML file.

Arrays are quantised to integer steps above their minimum and compressed with deflate.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import model_mismatch
from bertwright.analysis.core.word_states import WORD_STATE_TAPS
from bertwright.analysis.identifiability.effective_attention import missing_head_outputs
from bertwright.analysis.viewer.text_values import (
    QUERY_KEY_TAPS,
    TextValues,
    compute_text_values,
    find_neighbours,
    missing_attention,
    missing_token_predictions,
)
from bertwright.core.errors import UserError
from bertwright.core.files import write_text
from bertwright.core.pages import read_page_file, shared_script, shared_style

PACKAGE = "bertwright.analysis.viewer"

SCRIPTS = ("arrays", "hover", "panels", "view")
"""Names of the scripts, in the order in which they use each other."""

QUANTISATION_STEP = 2.0**-19
"""Quantisation step; values are off by at most half of it."""

MAX_QUANTISED_VALUE = 2**32 - 1
"""Maximum number of steps; arrays with a larger range get larger steps."""

MAX_NEURON_VALUES = 500_000
"""Maximum number of query and key values in a page, which are most of its size."""


def write_view(
    inputs: AnalysisInput, output_file: Path, provenance: str, max_texts: int | None = None
) -> None:
    """Write the page of :func:`render_view`."""
    write_text(output_file, render_view(inputs, provenance, max_texts))


def render_view(inputs: AnalysisInput, provenance: str, max_texts: int | None = None) -> str:
    """Render the page for the first texts; neighbours are searched among the words of all texts.

    A second model is shown with its differences. ``provenance`` states time and machine.

    Errors: UserError for a model without blocks, and for two models that cannot be compared.
    """
    if not inputs.model.num_layers:
        raise UserError(f"{inputs.model.name} has no blocks, so there is nothing to show")
    shown = replace(inputs, texts=inputs.texts[:max_texts])
    model, other_model = inputs.model, inputs.other_model
    unavailable = {
        "attention": missing_attention(model),
        "predictions": missing_token_predictions(model),
    }
    unavailable["neurons"] = unavailable["attention"] or model.missing_taps(*QUERY_KEY_TAPS)
    num_positions = sum(len(text) for text in shown.texts)
    num_values = 2 * num_positions * model.text_model.model.recipe.encoder.width * model.num_layers
    if not unavailable["neurons"] and num_values > MAX_NEURON_VALUES:
        unavailable["neurons"] = "the page would be too large: show fewer texts"
    others = [] if other_model is None else _other_model_arrays(shown, other_model)
    texts = compute_text_values(shown, neurons=unavailable["neurons"] is None)
    words = [] if model.missing_taps(*WORD_STATE_TAPS) else find_neighbours(inputs, texts)
    data = {
        "model": model.name,
        "other": None if other_model is None else other_model.name,
        "layers": model.num_layers,
        "heads": model.num_heads,
        "unavailable": unavailable,
        "words": words,
        "texts": [
            _text_data(values, others[number] if others else {})
            for number, values in enumerate(texts)
        ],
    }
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        read_page_file(PACKAGE, "view.html")
    )
    return template.render(
        model=model,
        provenance=provenance,
        has_norms=all(m is None or missing_head_outputs(m) is None for m in (model, other_model)),
        style=viewer_style(),
        script=viewer_script(),
        # The data must not contain the end tag of its script element.
        data=json.dumps(data, ensure_ascii=False, allow_nan=False).replace("</", "<\\/"),
    )


def viewer_style() -> str:
    """Return the style of the page, the same for every model."""
    return shared_style() + read_page_file(PACKAGE, "view.css")


def viewer_script() -> str:
    """Return the script of the page, the same for every model."""
    return shared_script() + "".join(read_page_file(PACKAGE, f"{name}.js") for name in SCRIPTS)


def pack_array(values: NDArray[Any]) -> dict[str, Any]:
    """Pack an array as JSON-compatible data: deflated byte planes of the steps, lowest first."""
    low, span = float(values.min()), float(np.ptp(values))
    step = max(QUANTISATION_STEP, span / MAX_QUANTISED_VALUE)
    steps = np.round((values.astype(np.float64) - low) / step).astype("<u4")
    num_bytes = max(1, (int(steps.max()).bit_length() + 7) // 8)
    planes = np.ascontiguousarray(steps.reshape(-1, 1).view(np.uint8).T[:num_bytes])
    return {
        "shape": list(values.shape),
        "low": low,
        "step": step,
        "values": base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode(),
    }


def _other_model_arrays(
    inputs: AnalysisInput, other_model: AnalysedModel
) -> list[dict[str, NDArray[Any]]]:
    """Return the arrays of every text for the second model."""
    if (reason := model_mismatch(inputs.model, other_model, inputs.texts)) is not None:
        raise UserError(reason)
    values = compute_text_values(replace(inputs, model=other_model), neurons=False)
    return [of_text.arrays for of_text in values]


def _text_data(text_values: TextValues, other_arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    neighbours = text_values.neighbours
    return {
        "tokens": text_values.tokens,
        "word_ids": text_values.word_ids,
        "words": text_values.words,
        "arrays": {name: pack_array(values) for name, values in text_values.arrays.items()},
        "other": {name: pack_array(values) for name, values in other_arrays.items()},
        "predictions": [p and asdict(p) for p in text_values.predictions],
        "neighbours": None if neighbours is None else neighbours[0].tolist(),
        "cosines": None if neighbours is None else np.round(neighbours[1], 4).tolist(),
    }
