"""Capitalisation: does this word begin with a capital letter? (Sun et al. 2019b, 4.2.1)."""

from typing import ClassVar, Literal

import numpy as np

from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.core.errors import UserError
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.classification import TokenClassification
from bertwright.objectives.objective import MaskingContext


class Capitalisation(TokenClassification):
    """Predict from the first token of every word whether the word was capitalised.

    It is meant for lower-cased vocabularies, whose tokens do not show capitalisation.
    """

    kind: Literal["capitalised"] = "capitalised"

    capabilities: ClassVar[Capabilities] = Capabilities(class_labels=("small", "capital"))

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return frozenset({"capitals"})

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        is_capitalised, word_ids = batch.token_info.is_capitalised, batch.token_info.word_ids
        if is_capitalised is None or word_ids is None:
            raise UserError(
                "objectives.capitalised needs text with annotated capitals: prepare it with "
                "--capitals"
            )
        is_word_start = np.ones(word_ids.shape, np.bool_)
        is_word_start[:, 1:] = word_ids[:, 1:] != word_ids[:, :-1]
        is_word_start &= (word_ids >= 0) & (is_capitalised >= 0) & ~batch.is_special
        positions = np.arange(word_ids.size, dtype=np.int64)
        labels = np.maximum(is_capitalised, 0).ravel().astype(np.int64)
        return batch, Targets(positions, labels, is_word_start.ravel().astype(np.float32))
