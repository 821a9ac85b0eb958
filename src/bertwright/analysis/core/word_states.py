"""Hidden states of words in every layer, cached on disk.

All analyses of hidden states share a memory-mapped array for the model and texts.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.texts import SentenceWords, encode_sentences, texts_digest
from bertwright.core.files import atomic_file
from bertwright.core.operating_system import reserve_space

WORD_STATE_TAPS = ("embeddings.output", "blocks.*.residual")


@dataclass(frozen=True)
class WordStates:
    """Hidden states of the W words of all texts, concatenated.

    Attributes:
        states: (layers + 1, W, D) float32, the mean over each word's tokens; layer 0 is the
            embeddings. D is the largest width; narrower states end with zeros, which change no
            distance, cosine or linear function.
        text_ids: (W,) index of each word's text.
        words: The words as strings.
    """

    states: NDArray[np.float32]
    text_ids: NDArray[np.int64]
    words: tuple[str, ...]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Index of the first word of each text, (N,)."""
        return np.flatnonzero(self.positions == 0)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Index of each word in its text, (W,)."""
        return np.arange(len(self.text_ids)) - np.searchsorted(self.text_ids, self.text_ids)

    @property
    def num_layers(self) -> int:
        """Number of layers, embeddings included."""
        return len(self.states)


def sentence_states(inputs: AnalysisInput, sentences: Iterable[SentenceWords]) -> WordStates:
    """Compute the hidden states of the words of other sentences."""
    texts = encode_sentences(inputs.model, sentences)
    return compute_word_states(replace(inputs, texts=texts, cache_folder=None))


def compute_word_states(inputs: AnalysisInput) -> WordStates:
    """Compute the hidden states of all words, or read them from the cache."""
    sizes = [len(text.words) for text in inputs.texts]
    words = tuple(word for text in inputs.texts for word in text.words)
    width = max(inputs.model.text_model.model.recipe.encoder.hidden_widths)
    shape = (inputs.model.num_layers + 1, len(words), width)
    text_ids = np.repeat(np.arange(len(sizes)), sizes)
    if inputs.cache_folder is None:
        states = np.empty(shape, np.float32)
        _write_word_states(inputs, states)
        return WordStates(states, text_ids, words)
    file = word_states_file(inputs, inputs.cache_folder)
    if (cached := _read_cached_states(file)) is not None:
        return WordStates(cached, text_ids, words)
    with atomic_file(file) as temporary:
        mapped = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
        reserve_space(temporary)
        _write_word_states(inputs, mapped)
        mapped.flush()
    return WordStates(np.load(file, mmap_mode="r"), text_ids, words)


def _read_cached_states(file: Path) -> NDArray[np.float32] | None:
    """Return the cached states; None if they are missing or incomplete."""
    try:
        return np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None


def word_states_file(inputs: AnalysisInput, folder: Path) -> Path:
    """Return the path of the cache file for the model and texts."""
    key = json.dumps(
        [inputs.model.model_digest, texts_digest(inputs.texts), WORD_STATE_TAPS, "mean", "float32"]
    )
    return folder / f"states-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"


def _write_word_states(inputs: AnalysisInput, states: NDArray[np.float32]) -> None:
    """Write the mean hidden states of the words of all texts into ``states``."""
    starts = np.cumsum([0, *(len(text.words) for text in inputs.texts)])
    names = ["embeddings.output", *(f"blocks.{n}.residual" for n in range(len(states) - 1))]
    for batch in activation_batches(inputs.model, inputs.texts, sorted(WORD_STATE_TAPS)):
        for index, (number, text) in enumerate(zip(batch.text_indices, batch.texts, strict=True)):
            for layer, name in enumerate(names):
                means = word_means(batch.values[name][index, : len(text)], text.word_ids)
                of_text = states[layer, starts[number] : starts[number + 1]]
                of_text[:, : means.shape[1]] = means.float().cpu().numpy()
                of_text[:, means.shape[1] :] = 0


def word_means(states: Tensor, word_ids: NDArray[np.int64]) -> Tensor:
    """Return the means (W, D) of the states (T, D) of each word; word id -1 is excluded."""
    ids = torch.from_numpy(word_ids).to(states.device)
    is_word = ids >= 0
    sums = states.new_zeros(int(ids.max()) + 1, states.shape[1])
    sums.index_add_(0, ids[is_word], states[is_word])
    return sums / torch.bincount(ids[is_word])[:, None]
