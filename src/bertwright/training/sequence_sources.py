"""The sequences of a data split, planned once per input format."""

from collections.abc import Mapping

from bertwright.batches.formats import SequenceSource
from bertwright.data.holdout import HELDOUT
from bertwright.data.shards.dataset import Dataset, Split
from bertwright.objectives.objective import Objective
from bertwright.recipes import Recipe


class SequenceSources:
    """The sequences of a split, by phase and objectives.

    Document-level token occurrences are computed only for objectives that need them: this is slow.
    """

    def __init__(self, recipe: Recipe, data: Dataset, split: str, seed: int) -> None:
        self._recipe = recipe
        self._data = data
        self._split = split
        self._seed = seed
        self._sources: dict[tuple[str, bool], SequenceSource] = {}

    def get(self, phase: int, objectives: Mapping[str, Objective]) -> SequenceSource:
        """Return the sequences of a phase for these objectives.

        Errors: UserError if the split is empty or lacks data that the recipe needs.
        """
        input_format = self._recipe.input_format_of(phase, objectives.values())
        if self._split == HELDOUT:
            input_format = input_format.for_evaluation
        needs_documents = any(o.capabilities.needs_document_context for o in objectives.values())
        key = (input_format.model_dump_json(), needs_documents)
        if key not in self._sources:
            split = open_split(self._recipe, self._data, self._split)
            self._sources[key] = input_format.plan(
                split.with_occurrences() if needs_documents else split,
                self._data.tokenizer.special_tokens,
                self._seed,
            )
        return self._sources[key]


def open_split(recipe: Recipe, data: Dataset, name: str) -> Split:
    """Open a split, with the encoder's language ids if it has language embeddings.

    Errors: UserError if the data have no languages, or one unknown to the encoder.
    """
    languages, split = recipe.encoder.embeddings.languages, data.split(name)
    return split.with_language_ids(languages) if languages else split
