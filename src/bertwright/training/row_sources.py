"""The rows that a recipe reads of a split, planned once for every way of assembling them."""

from collections.abc import Mapping

from bertwright.examples.assembly import RowSource
from bertwright.objectives.objective import Objective
from bertwright.recipes import Recipe
from bertwright.text.shards import Data, Split
from bertwright.text.splitting import HELDOUT


class RowSources:
    """The rows of a split, by phase and by what is asked of them.

    Only rows that are asked about their whole documents are told of these: it takes time.
    """

    def __init__(self, recipe: Recipe, data: Data, split: str, seed: int) -> None:
        self._recipe = recipe
        self._data = data
        self._split = split
        self._seed = seed
        self._planned: dict[tuple[str, bool], RowSource] = {}

    def of(self, phase: int, asked: Mapping[str, Objective]) -> RowSource:
        """The rows of a phase that these questions are asked of together.

        Errors: UserError where the split has none, or does not hold what the recipe reads.
        """
        assembly = self._recipe.assembly_of(phase, asked.values())
        if self._split == HELDOUT:
            assembly = assembly.evaluated
        told = any(objective.reads_documents for objective in asked.values())
        name = (assembly.model_dump_json(), told)
        if name not in self._planned:
            split = split_of(self._recipe, self._data, self._split)
            read = split.with_occurrences() if told else split
            self._planned[name] = assembly.plan(read, self._data.tokenizer.specials, self._seed)
        return self._planned[name]


def split_of(recipe: Recipe, data: Data, name: str) -> Split:
    """A split of the data; its languages numbered as those of the encoder, where that has any.

    Errors: UserError where the data say no languages, or one that the encoder does not know.
    """
    languages, split = recipe.encoder.embeddings.languages, data.split(name)
    return split.numbered(languages) if languages else split
