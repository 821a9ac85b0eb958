"""Compare a GGUF file, opened with llama.cpp, with the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.core.errors import UserError
from bertwright.core.hardware import num_cores
from bertwright.models.text_model import TextModel
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel

SAMPLE_TEXTS = (
    "A short one.",
    "The weather was fine, and so everybody went down to the harbour to see the ships.",
    "It costs 12.50, they wrote; na\u00efve \u201creaders\u201d in \u00c5rhus believed it!",
    "\u5317\u4eac 2008 \u2014 \u0443\u0440\u0430!",
)

MIN_COSINE = 0.99
"""Lowest cosine of a file that is kept; f32 and f16 reach 0.999, and q8_0 usually does."""


@dataclass(frozen=True)
class LlamaParity:
    """The lowest cosine between the outputs of llama.cpp and ours, and the largest difference."""

    cosine: float
    max_difference: float
    num_texts: int

    @property
    def description(self) -> str:
        """The parity in words."""
        return (
            f"equal tokens, and a cosine of at least {self.cosine:.5f}, on {self.num_texts} texts"
        )


class LlamaEncoder:
    """An encoder in llama.cpp, for one sequence at a time."""

    def __init__(self, file: Path, max_length: int) -> None:
        import llama_cpp  # pyright: ignore[reportMissingImports]

        self._library: Any = llama_cpp
        self._llama: Any = llama_cpp.Llama(
            str(file),
            n_ctx=max_length,
            n_batch=max_length,
            n_ubatch=max_length,
            embedding=True,
            n_threads=num_cores(),
            n_threads_batch=num_cores(),
            verbose=False,
        )
        self.max_length = max_length

    def tokenize(self, text: str) -> list[int]:
        """Return token ids with special tokens."""
        return self._llama.tokenize(text.encode(), add_bos=True, special=False)

    def outputs(self, token_ids: Sequence[int], size: int) -> NDArray[np.float32]:
        """Return the ``size`` outputs for a sequence: its vector, or its logits."""
        library, context = self._library, self._llama.ctx
        batch = library.llama_batch_init(len(token_ids), 0, 1)
        try:
            batch.n_tokens = len(token_ids)
            for index, token_id in enumerate(token_ids):
                batch.token[index], batch.pos[index] = token_id, index
                batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
                batch.logits[index] = True
            if library.llama_encode(context, batch) != 0:
                raise UserError("llama.cpp does not compute this file: please report the recipe")
            values = library.llama_get_embeddings_seq(context, 0)
            return np.ctypeslib.as_array(values, (size,)).copy()
        finally:
            library.llama_batch_free(batch)

    def close(self) -> None:
        """Free the memory."""
        self._llama.close()


def compare_with_llama(
    model: TextModel, file: Path, is_classifier: bool, texts: Sequence[str] = SAMPLE_TEXTS
) -> LlamaParity:
    """Compare tokens and outputs of llama.cpp with a model's.

    Raises UserError if the tokens of a text differ, or its outputs by more than rounding.
    """
    sequences = [model.encode_ids([text])[0] for text in texts]
    encoder = LlamaEncoder(file, max(map(len, sequences)))
    try:
        for text, expected in zip(texts, _whole_sequences(model, texts), strict=True):
            if encoder.tokenize(text) != expected:
                raise UserError(
                    f"llama.cpp splits {text!r} into other tokens: this is a bug in bertwright, "
                    f"please report the tokenizer"
                )
        if is_classifier:
            assert isinstance(model, FineTunedModel)
            task_sequences = [
                TaskSequence(ids, n, [0] * len(ids)) for n, ids in enumerate(sequences)
            ]
            outputs = model.head_outputs(task_sequences)
            ours = np.concatenate(outputs) / model.temperature
        else:
            ours = model.embed_ids(sequences)
        theirs = np.stack([encoder.outputs(ids, ours.shape[1]) for ids in sequences])
    finally:
        encoder.close()
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosine = float(((ours * theirs).sum(1) / norms).min())
    difference = float(np.abs(ours - theirs).max())
    # A single logit has no direction.
    if not (cosine >= MIN_COSINE or difference <= 0.05 * max(1.0, float(np.abs(ours).max()))):
        raise UserError(
            f"llama.cpp computes other outputs (cosine {cosine:.4f}): this is a bug in bertwright, "
            f"please report the recipe"
        )
    return LlamaParity(cosine, difference, len(texts))


def _whole_sequences(model: TextModel, texts: Sequence[str]) -> list[list[int]]:
    """Return token ids with special tokens, not truncated, as llama.cpp gives them."""
    specials, assembly = model.tokenizer.special_tokens, model.model.recipe.assembly
    return [assembly.add_special_tokens(ids, specials) for ids in model.tokenize(texts)]
