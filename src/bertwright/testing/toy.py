"""Recipes at toy size: the same axes, with sizes that train in a moment."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertwright.batches.batch import Batch, make_batch
from bertwright.batches.formats import SequenceSource
from bertwright.batches.formats.connective_pairs import ENGLISH_CONNECTIVES
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.rng import stream_key, uniform
from bertwright.data.shards.dataset import DialogueTurns, TokenSpans
from bertwright.data.shards.occurrences import TokenOccurrences
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    SpecialTokens,
    Tokenizer,
    WordLevelConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import Override
from bertwright.training.pretraining_batches import target_maker

TOY_LENGTH, TOY_VOCAB_SIZE, NUM_SEQUENCES = 24, 40, 8

TOY_SPECIAL_TOKENS = SpecialTokens(pad=0, unknown=1, start=2, end=3, mask=4)

PHASE_SETTINGS = {"fraction", "objectives", "depth", "dropout", "trainable_layers"}
"""Settings of a phase that do not depend on the size."""

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
"""Settings of a mixer at toy size, if the recipe states them."""

TOY_EMBEDDINGS = {
    "width": 24,
    "longest": 6,
    "character_width": 4,
    "filters": [[1, 12], [2, 12]],
    "buckets": 50,
}
"""Settings of embeddings at toy size, if their kind has them."""


def toy_recipe(name: str | Path, *overrides: Override) -> Recipe:
    """Return a recipe with 2 blocks of width 32, sequences of 24 tokens and 40 token ids."""
    recipe = Recipe.load(name)
    encoder, memory = recipe.encoder, recipe.encoder.memory_length
    phases = [phase.model_dump(include=PHASE_SETTINGS, mode="json") for phase in recipe.phases]
    return Recipe.load(
        name,
        "encoder.width=32",
        *(["encoder.depth.layers=2"] if hasattr(encoder.depth, "layers") else []),
        *(
            f"encoder.embeddings.{key}={json.dumps(value)}"
            for key, value in TOY_EMBEDDINGS.items()
            if hasattr(encoder.embeddings, key)
        ),
        *(
            f"encoder.mixer.{key}={json.dumps(value)}"
            for key, value in TOY_MIXER.items()
            if getattr(encoder.mixer, key, None) is not None
        ),
        *(
            ("encoder.bottleneck.width=16", "encoder.mixer.head_width=8")
            if encoder.bottleneck
            else ()
        ),
        f"assembly.length={TOY_LENGTH}",
        f"text.tokenizer.vocab_size={TOY_VOCAB_SIZE}",
        f"phases={json.dumps(phases)}",
        "batch_tokens=192",
        *([f"encoder.memory_length={min(TOY_LENGTH, memory)}"] if memory else []),
        "precision=float32",
        "compile=false",
        *overrides,
    )


@dataclass
class ToyText:
    """A split of random tokens with words, sentences and documents.

    Documents alternate between two languages, and every second document translates the one before
    it. Some spans are phrases or entities, and all text can be read as dialogues. Every third
    sentence begins with a connective of two tokens.
    """

    num_tokens: int = 1200
    name: str = "train"

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        self.text = rng.integers(5, TOY_VOCAB_SIZE, self.num_tokens).astype(np.int32)
        self.sentence_starts = np.arange(0, self.num_tokens + 1, 6, dtype=np.int64)
        for number, start in enumerate(self.sentence_starts[:-1:3].tolist()):
            self.text[start : start + 2] = self.tokenize(
                ENGLISH_CONNECTIVES[number % len(ENGLISH_CONNECTIVES)]
            )
        self.document_starts = np.arange(0, self.num_tokens + 1, 60, dtype=np.int64)
        self.num_documents = len(self.document_starts) - 1
        self.language_ids = np.arange(self.num_documents) % 2
        self.language_names = ("en", "de")
        self.translations = np.arange(1, self.num_documents, 2)
        # Phrases and entities of four tokens alternate; every sentence is a turn of a dialogue.
        starts = np.arange(8, self.num_tokens - 4, 8)
        self.phrases = TokenSpans(starts[::2], starts[::2] + 4)
        self.entities = TokenSpans(starts[1::2], starts[1::2] + 4)
        self.capitals = np.arange(0, self.num_tokens, 6)
        first = self.sentence_starts[:-1]
        self.turns = DialogueTurns(first, (first // 6 % 2).astype(np.uint8))
        self.flags = np.zeros(self.num_tokens, np.uint8)
        self.flags[::2] |= WORD_START
        self.flags[self.sentence_starts[:-1]] |= SENTENCE_START
        self.flags[self.document_starts[:-1]] |= DOCUMENT_START
        self.occurrences = TokenOccurrences(cast(Any, self))

    def tokenize(self, text: str) -> list[int]:
        return [5 + sum(text.strip().lower().encode()) % (TOY_VOCAB_SIZE - 5)] * 2

    def token_ids(self, start: int, stop: int) -> NDArray[np.int32]:
        return self.text[start:stop]

    def gather(
        self, starts: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        positions = starts[:, None] + np.arange(length)
        return self.text[positions], self.flags[positions]


def toy_arrays(
    recipe: Recipe,
    phase: int,
    epoch: int = 0,
    turn: int = 0,
    num_sequences: int = NUM_SEQUENCES,
    continues_previous: bool = False,
) -> Batch:
    """Return the first of eight sequences of toy text, with targets.

    ``turn`` is the index of the group of objectives in the phase's schedule.
    """
    objectives = recipe.objective_schedule(phase)[turn].objectives
    source, index = _toy_source(recipe, phase, turn)
    vocabulary = toy_vocabulary()
    target_makers = {
        name: target_maker(objective, recipe.seed, vocabulary, 0.0)
        for name, objective in objectives.items()
    }
    return make_batch(
        source,
        index[:num_sequences],
        np.full(num_sequences, epoch, np.int64),
        target_makers,
        continues_previous=continues_previous,
    )


def toy_sequences(recipe: Recipe, phase: int = 0, turn: int = 0) -> SequenceBatch:
    """Return the eight sequences of :func:`toy_arrays` in epoch 0, before masking."""
    source, index = _toy_source(recipe, phase, turn)
    return source.sequences(index, np.zeros_like(index))


def _toy_source(recipe: Recipe, phase: int, turn: int) -> tuple[SequenceSource, NDArray[np.int64]]:
    """Return sequences of toy text, and the indices of eight sequences from all parts of it.

    A mixture orders its sequences by kind.
    """
    objectives = recipe.objective_schedule(phase)[turn].objectives
    input_format = recipe.input_format_of(phase, objectives.values())
    source = input_format.plan(cast(Any, ToyText()), TOY_SPECIAL_TOKENS, recipe.seed)
    return source, np.linspace(0, source.num_sequences - 1, NUM_SEQUENCES).astype(np.int64)


def toy_vocabulary() -> Vocabulary:
    """Return 40 token ids of equal frequency."""
    return Vocabulary(TOY_VOCAB_SIZE, TOY_SPECIAL_TOKENS, np.ones(TOY_VOCAB_SIZE, np.int64))


def toy_tokens(num_sequences: int, length: int = TOY_LENGTH, seed: int = 2) -> torch.Tensor:
    """Return random token ids (B, L) without special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, TOY_VOCAB_SIZE, (num_sequences, length), generator=generator)


@cache
def toy_tokenizer() -> Tokenizer:
    """Return a tokenizer of 40 tokens, with one token per word."""
    words = " ".join(f"{chr(97 + n // 6)}{chr(97 + n % 6)}" for n in range(TOY_VOCAB_SIZE - 5))
    return train_tokenizer([words] * 2, WordLevelConfig(vocab_size=TOY_VOCAB_SIZE))


def tokenizer_of(texts: Sequence[str], kind: str) -> Tokenizer:
    """Return a small tokenizer for these texts: word-level, byte BPE, or else WordPiece."""
    if kind in ("words", "items"):
        vocab_size = len({word for text in texts for word in text.split()}) + 5
        return train_tokenizer([*texts] * 2, WordLevelConfig(vocab_size=max(vocab_size, 16)))
    if kind == "byte-bpe":
        return train_tokenizer(texts, ByteBpeConfig(vocab_size=300))
    return train_tokenizer(texts, WordPieceConfig(vocab_size=300))


def toy_text_model(
    texts: Sequence[str], *overrides: Override, recipe: str | Path = "bert", kind: str | None = None
) -> TextModel:
    """Return an untrained model of toy size for up to 128 tokens, with a tokenizer for texts.

    ``kind`` is the kind of tokenizer, by default the recipe's.
    """
    length, start = "assembly.length=128", "encoder.initialisation={kind: width-aware}"
    toy = toy_recipe(recipe, length, start, *overrides)
    tokenizer = tokenizer_of(texts, kind or toy.text.tokenizer.kind_name())
    return TextModel(Model.build(toy, tokenizer.vocab_size, tokenizer), tokenizer, "float32")


@torch.no_grad()
def randomise(module: nn.Module, scale: float = 0.2) -> None:
    """Set all parameters to random values: weights and biases around 0, gains around 1.

    With these values, losing or swapping a parameter changes the outputs.
    """
    for name, parameter in module.named_parameters():
        size = np.arange(parameter.numel())
        values = 2.0 * uniform(stream_key(0, "testing", name), size) - 1.0
        is_gain = parameter.dim() == 1 and name.endswith("weight")
        noise = torch.from_numpy(np.asarray(values)).to(parameter.dtype).view_as(parameter)
        parameter.copy_(is_gain + scale * noise)
