"""The files of a sentence-transformers folder, and the library itself."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertwright.core.optional_dependencies import require_library
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import HuggingFaceExport, export_huggingface
from bertwright.interop.huggingface.sentence_transformers_config import (
    MODEL_CONFIG_FILE,
    MODULES_FILE,
    TRANSFORMER_CONFIG_FILES,
)
from bertwright.interop.huggingface.tokenizer.writer import set_special_token_positions
from bertwright.models.model import Model

SAMPLE_TEXTS = (
    "A text.",
    "Another one, which is longer than the first and ends later.",
    "It costs 12.50, she wrote; \u201cnot one\u201d reader believed it!",
    "A text of many words. " * 200,
)
"""Texts of several lengths, one beyond the maximum length of most encoders."""

TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"


def require_sentence_transformers() -> Any:
    """Return the library; MissingExtra if it is not installed."""
    require_library("sentence-transformers", "sentence-transformers")
    import sentence_transformers

    return sentence_transformers


def write_stock_model(
    folder: Path, model: Model, tokenizer: Tokenizer, model_type: str | None
) -> HuggingFaceExport:
    """Write the files of a stock class into an existing folder."""
    stock_folder = folder / "stock"
    report = export_huggingface(model, tokenizer, stock_folder, model_type=model_type)
    for file in stock_folder.iterdir():
        shutil.move(file, folder / file.name)
    stock_folder.rmdir()
    set_special_token_positions(folder, tokenizer, model.recipe.assembly)
    return report


def write_modules(folder: Path, modules: Sequence[tuple[str, str]]) -> None:
    """Write modules.json, given the path and the class of each module."""
    content = [
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (path, kind) in enumerate(modules)
    ]
    write_json(folder / MODULES_FILE, content)


def write_transformer_config(folder: Path, max_length: int, **settings: Any) -> None:
    """Write the settings of the Transformer module."""
    content = {"max_seq_length": max_length, "do_lower_case": False, **settings}
    write_json(folder / TRANSFORMER_CONFIG_FILES[0], content)


def write_model_config(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the model type, prompts and similarity function of a folder."""
    write_json(folder / MODEL_CONFIG_FILE, settings)


def write_json(file: Path, content: Any) -> None:
    """Write plain data to a file, whose folder is created."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
