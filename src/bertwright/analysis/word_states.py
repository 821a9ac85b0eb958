"""The states of words in every layer, kept on disk: a memory-mapped array that is written once for
a model and texts, and read by every analysis that looks at states."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.findings import Found
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.texts import digest
from bertwright.files import atomic_file

SITES = ("embeddings.output", "blocks.*.residual")


@dataclass(frozen=True)
class WordStates:
    """Of W words in all texts, one after the other.

    Attributes:
        states: (layers + 1, W, D) float32, the means of the pieces of each; layer 0 is what the
            blocks read.
        text: (W,) the text that each stands in.
        words: as they are written.
    """

    states: NDArray[np.float32]
    text: NDArray[np.int64]
    words: tuple[str, ...]

    @property
    def num_layers(self) -> int:
        """With the embeddings."""
        return len(self.states)


def word_states(case: Case) -> WordStates:
    """The states of all words of the texts; from the cache where they have been written there."""
    sizes = [len(text.words) for text in case.texts]
    words = tuple(word for text in case.texts for word in text.words)
    width = case.subject.text_model.model.recipe.encoder.width
    shape, begins = (case.subject.num_layers + 1, len(words), width), np.cumsum([0, *sizes])
    text = np.repeat(np.arange(len(sizes)), sizes)
    if case.cache is None:
        states = np.empty(shape, np.float32)
        listen(case.subject, case.texts, [_Writing(states, begins)])
        return WordStates(states, text, words)
    file = states_file(case, case.cache)
    if (kept := _kept(file)) is not None:
        return WordStates(kept, text, words)
    with atomic_file(file) as temporary:
        held = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
        listen(case.subject, case.texts, [_Writing(held, begins)])
        held.flush()
    return WordStates(np.load(file, mmap_mode="r"), text, words)


def _kept(file: Path) -> NDArray[np.float32] | None:
    """What was written there; None where nothing was, or where it is not whole."""
    try:
        return np.load(file, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None


def states_file(case: Case, cache: Path) -> Path:
    """Where the states of the words of the texts are kept."""
    key = json.dumps([case.subject.identity, digest(case.texts), SITES, "mean", "float32"])
    return cache / f"states-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"


class _Writing:
    """Writes the states of a batch to where its words begin."""

    sites = SITES

    def __init__(self, states: NDArray[np.float32], begins: NDArray[np.int64]) -> None:
        self.states, self.begins = states, begins

    def hear(self, heard: Heard) -> None:
        """Write the means of the pieces of each word."""
        names = [
            "embeddings.output",
            *(f"blocks.{n}.residual" for n in range(len(self.states) - 1)),
        ]
        for row, number in enumerate(heard.numbers):
            of = slice(self.begins[number], self.begins[number + 1])
            states = heard.values[names[0]]
            for layer, name in enumerate(names):
                # Where all places have halted no block runs, and they stay as they are.
                states = heard.values.get(name, states)
                mean = means(states[row, : len(heard.texts[row])], heard.texts[row].word)
                self.states[layer, of] = mean.float().cpu().numpy()

    def found(self) -> Found:
        """Nothing but what was written."""
        return Found([])


def means(states: Tensor, word: NDArray[np.int64]) -> Tensor:
    """The means (W, D) of states (T, D) whose ``word`` (T,) is the same, but -1."""
    own = torch.from_numpy(word).to(states.device)
    inside = own >= 0
    found = states.new_zeros(int(own.max()) + 1, states.shape[1])
    found.index_add_(0, own[inside], states[inside])
    return found / torch.bincount(own[inside])[:, None]
