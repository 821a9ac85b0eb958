"""Time and memory of the attention analyses, against the forward pass alone.

Both use explicit attention.
"""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertwright.analysis.core.activations import MAX_TOKENS_PER_BATCH, activation_batches
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.runner import select_analyses
from bertwright.analysis.core.texts import AnalysedText, encode_texts
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_batches import text_batches
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.runtime.process import configure_process
from bertwright.tasks.formats.examples import Example

GROUP, HOOK_POINTS = "attention", ("blocks.*.attention.weights",)

LENGTH, NUM_WORDS = 128, 1000
"""Tokens per text, and the size of the vocabulary that its words are drawn from."""

COLUMNS = {
    "model": "model",
    "texts": "texts",
    "analyses": "analyses",
    "texts_per_second": "texts/s",
    "relative_speed": "speed relative to the forward pass",
    "mebibytes": "MiB above the model",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


def compare(recipe_name: str, num_texts: int, num_rounds: int, log: Log) -> dict[str, Any]:
    """Return the figures of a model; every round reads other texts, without and with analyses."""
    configure_process()
    model = _build_analysed_model(recipe_name)
    inputs = AnalysisInput(model, _texts(model, num_texts))
    analyses = [
        analysis for analysis in select_analyses([GROUP]) if isinstance(analysis, StreamingAnalysis)
    ]
    _read(model, inputs.texts[:1])
    bytes_before = _resident_bytes()
    forward_seconds: list[float] = []
    analysis_seconds: list[float] = []
    for indices in np.array_split(np.arange(num_texts), num_rounds):
        texts = [inputs.texts[n] for n in indices]
        start = time.perf_counter()
        _read(model, texts)
        middle = time.perf_counter()
        for batch in activation_batches(model, texts, HOOK_POINTS):
            numbered = replace(batch, text_indices=[int(indices[n]) for n in batch.text_indices])
            for analysis in analyses:
                analysis.measure(inputs, numbered)
        forward_seconds.append(middle - start)
        analysis_seconds.append(time.perf_counter() - middle)
        log(
            f"{len(texts)} texts: forward pass {forward_seconds[-1]:.1f} s, "
            f"with analyses {analysis_seconds[-1]:.1f} s"
        )
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "model": recipe_name,
        "texts": num_texts,
        "analyses": len(analyses),
        "texts_per_second": num_texts / sum(analysis_seconds),
        "relative_speed": sum(forward_seconds) / sum(analysis_seconds),
        "mebibytes": (peak_bytes - bytes_before) / 2**20,
    }


def _build_analysed_model(recipe_name: str) -> AnalysedModel:
    recipe = Recipe.load(recipe_name, "encoder.mixer.kernel=explicit")
    tokenizer = train_tokenizer([" ".join(_words())] * 2, WordLevelConfig(vocab_size=NUM_WORDS + 5))
    model = Model.build(recipe, tokenizer.vocab_size, tokenizer).eval()
    return AnalysedModel(recipe_name, TextModel(model, tokenizer, "float32"))


def _words() -> list[str]:
    return [f"word{number}" for number in range(NUM_WORDS)]


def _texts(model: AnalysedModel, num_texts: int) -> list[AnalysedText]:
    words = np.random.default_rng(0).choice(_words(), (num_texts, LENGTH - 2))
    return encode_texts(model, [Example(" ".join(text_words)) for text_words in words], LENGTH)


@torch.no_grad()
def _read(model: AnalysedModel, texts: Sequence[AnalysedText]) -> None:
    padding = model.tokenizer.special_tokens.pad
    sequences = [text.token_ids for text in texts]
    device = model.text_model.device
    for batch in text_batches(sequences, padding, device, None, MAX_TOKENS_PER_BATCH):
        model.encoder(batch.token_ids, batch.token_info)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
