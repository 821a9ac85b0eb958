"""A row of the table as it was published, and what is counted and computed of it.

Counts are of the encoder with its embeddings and its pooler, no head of a task; operations are
those of a place in rows of 128.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml
from pydantic import Field, TypeAdapter

from bertwright.axes import Settings
from bertwright.model.counting import arithmetic, parameters_by_part
from bertwright.recipes import Recipe

BASE = ("bert-base",)
ROWS_OF_128 = "phases=[{share: 1, length: 128}]"
BITS = 32


class Said(Settings):
    """What the table says; times are those of the authors' machines."""

    compression: float
    retention: float
    speed_up: float | None = None
    layers: int | None = None
    tasks: str


class Bits(Settings):
    """Of a weight in a block, and of every other."""

    blocks: float = BITS
    others: float = BITS


class Scores(Settings):
    """Scores of a model and of what it was made of, and what they are ``of``."""

    own: tuple[float, ...]
    base: tuple[float, ...]
    of: str


class Published(Settings):
    """A row; without a ``recipe`` too little is known of the model to count it. Its speed was
    published in relation to the model that it was ``timed_against``."""

    id: str
    model: str
    published: Said
    recipe: tuple[str, ...] = ()
    timed_against: tuple[str, ...] = BASE
    pooler: bool = True
    bits: Bits = Bits()
    scores: Scores | None = None
    source: str = Field(min_length=1)

    @property
    def size(self) -> "Size | None":
        """What it takes; None where it is not known."""
        return size_of(self.recipe, self.pooler, self.bits) if self.recipe else None

    @property
    def retained(self) -> float | None:
        """The share of the scores of its base, in hundredths, where both were published."""
        if self.scores is None:
            return None
        return 100 * sum(self.scores.own) / sum(self.scores.base)


@dataclass(frozen=True)
class Size:
    """What an encoder takes: parameters, bytes, and operations for a place in a row of 128."""

    parameters: int
    bytes: float
    operations: float


@cache
def published() -> tuple[Published, ...]:
    """All rows, in their order."""
    file = resources.files("bertwright.studies.compression_table").joinpath("published.yaml")
    stated = yaml.safe_load(file.read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Published, ...]).validate_python(stated)


def size_of(words: Sequence[str], pooler: bool = True, bits: Bits | None = None) -> Size:
    """Of a recipe with changes."""
    recipe = bare(words, pooler)
    parts = parameters_by_part(recipe)
    each = bits or Bits()
    stored = sum(
        n * (each.blocks if part == "blocks" else each.others) for part, n in parts.items()
    )
    found = arithmetic(recipe)
    return Size(sum(parts.values()), stored / 8, found.width + found.length)


def bare(words: Sequence[str], pooler: bool = True) -> Recipe:
    """A recipe with changes, whose encoder and pooler alone are left."""
    name, *changes = words
    recipe = Recipe.load(name, *changes, ROWS_OF_128)
    return recipe.model_copy(update={"objectives": {}, "pooler": pooler, "decoder": None})
