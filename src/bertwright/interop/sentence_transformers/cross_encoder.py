"""Export a model of the relevance of pairs: a stock classifier with one output."""

from pathlib import Path

import numpy as np

from bertwright.core.files import atomic_folder
from bertwright.interop.huggingface.exporter import HuggingFaceExport, export_huggingface
from bertwright.interop.huggingface.sentence_transformers_config import CROSS_ENCODER
from bertwright.interop.parity import Parity
from bertwright.interop.sentence_transformers.folder import (
    SAMPLE_TEXTS,
    require_sentence_transformers,
    write_model_config,
)
from bertwright.tasks.fine_tuned_model import FineTunedModel

QUERY = "It costs 12.50: which text?"
"""A query to compare scores for."""


def export_cross_encoder(
    model: FineTunedModel, folder: Path, verify: bool = False, model_type: str | None = None
) -> HuggingFaceExport:
    """Write a ``CrossEncoder`` whose ``predict`` gives the same probabilities as the model's."""
    with atomic_folder(folder) as temporary:
        report = export_huggingface(
            model, model.tokenizer, temporary / "stock", model_type=model_type
        )
        for file in (temporary / "stock").iterdir():
            file.rename(temporary / file.name)
        (temporary / "stock").rmdir()
        write_model_config(temporary, {"model_type": CROSS_ENCODER})
        difference = _max_difference(temporary, model) if verify else None
    return HuggingFaceExport(report.architecture, difference)


def _max_difference(folder: Path, model: FineTunedModel) -> float:
    """Return the largest difference from sentence-transformers; UserError if not just rounding."""
    stock = require_sentence_transformers().CrossEncoder(str(folder), device="cpu")
    pairs = [(QUERY, text) for text in SAMPLE_TEXTS]
    ours = np.array([prediction.value for prediction in model.predict(pairs)], np.float32)
    parity = Parity()
    parity.update(ours, stock.predict(pairs))
    parity.require_rounding("sentence-transformers")
    return parity.max_difference
