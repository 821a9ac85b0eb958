"""Discourse relation: which connective joined two sentences? (Sun et al. 2019b, section 4.2.3)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bertwright.batches.formats import ConnectedPair, InputFormat
from bertwright.batches.formats.connective_pairs import ENGLISH_CONNECTIVES, ConnectiveList
from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.core.errors import UserError
from bertwright.objectives.classification import SequenceClassification
from bertwright.objectives.objective import MaskingContext


class DiscourseRelation(SequenceClassification):
    """Predict which of ``connectives`` joined the two sentences (Sileo et al. 2019).

    The objective uses its own input format, ``connected-pair``. A connective is removed exactly as
    listed, so one that is followed by a comma is listed with the comma. Other languages need their
    own list. The paper's list has 174 connectives; the default has 20 English ones.
    """

    kind: Literal["discourse-relation"] = "discourse-relation"
    connectives: ConnectiveList = ENGLISH_CONNECTIVES

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return frozenset({"connectives"})

    @property
    def input_format(self) -> InputFormat:
        return ConnectedPair(connectives=self.connectives)

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        connective_ids = batch.token_info.connective_ids
        if connective_ids is None:
            raise UserError("objectives.discourse-relation needs the input format connected-pair")
        labels = connective_ids.max(axis=1).astype(np.int64)
        positions = batch.token_ids.shape[1] * np.arange(len(labels), dtype=np.int64)
        weights = (labels >= 0).astype(np.float32)
        return batch, Targets(positions, np.maximum(labels, 0), weights)

    @property
    def class_labels(self) -> Sequence[str]:
        return self.connectives
