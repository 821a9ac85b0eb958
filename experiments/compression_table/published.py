"""Published compressed models, with counts of the same architecture.

Counts are of the encoder with its embeddings and its pooler, without a head; FLOPs are per token in
sequences of 128.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml
from pydantic import Field, TypeAdapter

from bertwright.core.config import Settings
from bertwright.models.costs import flops_per_token, num_parameters_by_part
from bertwright.recipes import Recipe

BASE = ("bert-base",)
SEQUENCES_OF_128 = "phases=[{fraction: 1, length: 128}]"
BITS = 32


class PublishedResult(Settings):
    """A published result; the speed-up is that on the authors' machines."""

    compression: float
    retention: float
    speed_up: float | None = None
    layers: int | None = None
    tasks: str


class WeightBits(Settings):
    """The bits of a weight in blocks, and of any other."""

    blocks: float = BITS
    other: float = BITS


class PublishedScores(Settings):
    """The scores of a model and of its base, on ``tasks``."""

    compressed: tuple[float, ...]
    base: tuple[float, ...]
    tasks: str


class PublishedModel(Settings):
    """A published model; without a ``recipe`` too little is known to count it.

    Its speed-up was published against ``speed_baseline``.
    """

    id: str
    model: str
    result: PublishedResult
    recipe: tuple[str, ...] = ()
    speed_baseline: tuple[str, ...] = BASE
    pooler: bool = True
    bits: WeightBits = WeightBits()
    scores: PublishedScores | None = None
    source: str = Field(min_length=1)

    @property
    def size(self) -> "EncoderSize | None":
        """The size; None if it is not known."""
        return encoder_size(self.recipe, self.pooler, self.bits) if self.recipe else None

    @property
    def score_retention(self) -> float | None:
        """The score in percent of that of its base, where both were published."""
        if self.scores is None:
            return None
        return 100 * sum(self.scores.compressed) / sum(self.scores.base)


@dataclass(frozen=True)
class EncoderSize:
    """The size of an encoder: parameters, bytes, and FLOPs per token in sequences of 128."""

    parameters: int
    bytes: float
    flops: float


@cache
def load_published() -> tuple[PublishedModel, ...]:
    """Return all models in order."""
    file = resources.files("experiments.compression_table").joinpath("published.yaml")
    models = yaml.safe_load(file.read_text(encoding="utf-8"))
    return TypeAdapter(tuple[PublishedModel, ...]).validate_python(models)


def encoder_size(
    recipe_words: Sequence[str], pooler: bool = True, bits: WeightBits | None = None
) -> EncoderSize:
    """Return the size of a recipe with changes."""
    recipe = bare_recipe(recipe_words, pooler)
    parts = num_parameters_by_part(recipe)
    bits = bits or WeightBits()
    num_bits = sum(
        n * (bits.blocks if part == "blocks" else bits.other) for part, n in parts.items()
    )
    flops = flops_per_token(recipe)
    return EncoderSize(sum(parts.values()), num_bits / 8, flops.projections + flops.attention)


def bare_recipe(recipe_words: Sequence[str], pooler: bool = True) -> Recipe:
    """Return a recipe with changes, without objectives and decoder."""
    name, *changes = recipe_words
    recipe = Recipe.load(name, *changes, SEQUENCES_OF_128)
    return recipe.model_copy(update={"objectives": {}, "pooler": pooler, "decoder": None})
