"""Every system as a toy: the same axes, sizes that train in a moment."""

import json
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertwright.encoder.characters import Characters
from bertwright.examples.assembly.connectives import ENGLISH
from bertwright.examples.batches import make_batch
from bertwright.examples.vocabulary import Vocabulary
from bertwright.model.model import TensorBatch
from bertwright.objectives.objective import Asking, Objective
from bertwright.randomness import Draw
from bertwright.recipes import Recipe
from bertwright.recipes.loading import systems
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.occurrences import Occurrences
from bertwright.text.shards import Stretches, Turns
from bertwright.text.tokenizers import Specials

Module = TypeVar("Module", bound=nn.Module)

LENGTH, VOCABULARY = 24, 40

KEPT = {"share", "objectives", "depth", "dropout", "trained"}
"""What a phase states that has nothing to do with its size."""

SYSTEMS = systems()

TOY_MIXER = {
    "head_width": 16,
    "heads": 2,
    "patterns": ["left"],
    "between": 40,
    "cell": 48,
    "buckets": 2,
    "chunk": 8,
    "rounds": 2,
}
"""What a mixer has at toy size, where its system states it."""

TOY_CHARACTERS = (
    "encoder.embeddings.longest=6",
    "encoder.embeddings.character_width=4",
    "encoder.embeddings.filters=[[1, 12], [2, 12]]",
)

SPARSE = {
    "longformer": "{kind: or, rules: [{kind: window, size: 3}, {kind: global}]}",
    "longformer-char": "{kind: and, rules: [causal, {kind: windows, sizes: [8, 7],"
    " dilations: [1, 3], dilated_heads: 1}]}",
    "bigbird": "{kind: or, rules: [{kind: window, size: 1, block: 2}, {kind: global, first: 1,"
    " last: 1, block: 2}, {kind: random-blocks, number: 1, block: 2}, {kind: short, length: 14}]}",
}
"""Rules for long rows, as small as the rows."""


def shaken(module: Module, size: float) -> Module:
    """A module whose parameters are moved by noise of this size, the same every time: none of them
    is at the 0 or the 1 that it starts from."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(size * noise.to(parameter.device))
    return module


@cache
def published(system: str) -> Recipe:
    """A system as it is: read once, since a recipe is frozen."""
    return Recipe.load(system)


@cache
def toy(system: str, *overrides: str) -> Recipe:
    """A system with two blocks of width 32, rows of 24 places and 40 pieces."""
    own = published(system)
    memory = own.encoder.memory
    narrow = hasattr(own.encoder.embeddings, "width")
    thin = ("encoder.bottleneck.width=16", "encoder.mixer.head_width=8")
    phases = [phase.model_dump(include=KEPT, mode="json") for phase in own.phases]
    return Recipe.load(
        system,
        "encoder.width=32",
        "encoder.depth.layers=2",
        *(["encoder.embeddings.width=24"] if narrow else []),
        *(TOY_CHARACTERS if isinstance(own.encoder.embeddings, Characters) else []),
        *(
            f"encoder.mixer.{key}={json.dumps(value)}"
            for key, value in TOY_MIXER.items()
            if getattr(own.encoder.mixer, key, None) is not None
        ),
        *(thin if own.encoder.bottleneck else ()),
        f"assembly.length={LENGTH}",
        f"text.tokenizer.size={VOCABULARY}",
        f"phases={json.dumps(phases)}",
        "batch_tokens=192",
        *([f"encoder.memory={min(LENGTH, memory)}"] if memory else []),
        *([f"encoder.visibility={SPARSE[system]}"] if system in SPARSE else []),
        "precision=float32",
        "compile=false",
        *overrides,
    )


SPECIALS = Specials(pad=0, unknown=1, start=2, end=3, mask=4)
ROWS = 8


@dataclass
class ToyText:
    """Random pieces with words, sentences and documents: what an assembly reads of a split.

    Documents are in two languages by turns, and each second one translates the one before. Some
    stretches are phrases or names, and all of it may be read as dialogues. Every third sentence
    begins with a connective of two pieces.
    """

    num_pieces: int = 1200
    name: str = "train"

    def __post_init__(self) -> None:
        draw = np.random.default_rng(5)
        self.text = draw.integers(5, VOCABULARY, self.num_pieces).astype(np.int32)
        self.sentence_starts = np.arange(0, self.num_pieces + 1, 6, dtype=np.int64)
        for number, start in enumerate(self.sentence_starts[:-1:3].tolist()):
            self.text[start : start + 2] = self.pieces_of(ENGLISH[number % len(ENGLISH)])
        self.document_starts = np.arange(0, self.num_pieces + 1, 60, dtype=np.int64)
        self.num_documents = len(self.document_starts) - 1
        self.languages = np.arange(self.num_documents) % 2
        self.language_names = ("en", "de")
        self.translations = np.arange(1, self.num_documents, 2)
        # Phrases and names of four pieces by turns; every sentence is a turn of a dialogue.
        starts = np.arange(8, self.num_pieces - 4, 8)
        self.phrases = Stretches(starts[::2], starts[::2] + 4)
        self.entities = Stretches(starts[1::2], starts[1::2] + 4)
        self.capitals = np.arange(0, self.num_pieces, 6)
        first = self.sentence_starts[:-1]
        self.turns = Turns(first, (first // 6 % 2).astype(np.uint8))
        self.marks = np.zeros(self.num_pieces, np.uint8)
        self.marks[::2] |= WORD_START
        self.marks[self.sentence_starts[:-1]] |= SENTENCE_START
        self.marks[self.document_starts[:-1]] |= DOCUMENT_START
        self.occurrences = Occurrences(self)

    def pieces_of(self, text: str) -> list[int]:
        return [5 + sum(text.strip().lower().encode()) % (VOCABULARY - 5)] * 2

    def pieces(self, start: int, stop: int) -> NDArray[np.int32]:
        return self.text[start:stop]

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        at = starts[:, None] + np.arange(length)
        return self.text[at], self.marks[at]


def toy_batches(
    recipe: Recipe, phase: int, device: torch.device | str = "cpu"
) -> list[TensorBatch]:
    """A batch for each turn of a phase."""
    turns = range(len(recipe.turns_of(phase)))
    return [toy_batch(recipe, phase, turn=turn, device=device) for turn in turns]


def toy_batch(
    recipe: Recipe,
    phase: int,
    epoch: int = 0,
    turn: int = 0,
    device: torch.device | str = "cpu",
) -> TensorBatch:
    """Eight rows of toy text with the questions of one turn of a phase."""
    asked = recipe.turns_of(phase)[turn].objectives
    assembly = recipe.assembly_of(phase, asked.values())
    source = assembly.plan(cast(Any, ToyText()), SPECIALS, recipe.seed)
    vocabulary = Vocabulary(VOCABULARY, SPECIALS, np.ones(VOCABULARY, np.int64))

    def ask(objective: Objective, rows: Any, epoch: Any, index: Any, before: Any) -> Any:
        draw = Draw(recipe.seed, epoch, index)
        return objective.ask(rows, Asking(draw, vocabulary, before=before))

    askers = {name: partial(ask, o) for name, o in asked.items()}
    # From all over the text: the rows of a mixture stand one kind after the other.
    index = np.linspace(0, source.num_rows - 1, ROWS).astype(np.int64)
    batch = make_batch(source, index, np.full(ROWS, epoch, np.int64), askers)
    return TensorBatch(batch, device)
