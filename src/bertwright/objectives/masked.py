"""Masked language modelling, and the base of masking objectives."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from bertwright.batches.arrays import BoolArray
from bertwright.batches.masking import MaskSelection, SelectedPositions, TokenSelection
from bertwright.batches.masking.corruption import Corruption, TokenReplacement
from bertwright.batches.targets import Targets, mask_tokens, token_targets
from bertwright.batches.token_info import DataRequirement, SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.objectives.objective import DeviceTargets, MaskingContext, ModelOutput, Objective


class MaskingObjective(Objective):
    """Base of objectives that mask: ``selection`` of positions and ``corruption`` of tokens."""

    selection: MaskSelection = TokenSelection()
    corruption: Corruption = TokenReplacement()

    masks_input: ClassVar[bool] = True

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        return self.selection.data_requirements

    def order_conflict(
        self, preceding: Mapping[str, Objective], following: Mapping[str, Objective]
    ) -> str | None:
        masking = [name for name, objective in preceding.items() if objective.masks_input]
        if not masking:
            return None
        return f"would predict tokens that {masking[0]!r} shows: give each a fraction of the steps"

    def make_targets(
        self, batch: SequenceBatch, context: MaskingContext
    ) -> tuple[SequenceBatch, Targets]:
        return mask_tokens(
            batch,
            self.selection,
            self.corruption,
            context.vocabulary,
            context.rng.fold_in(self.kind),  # type: ignore[attr-defined]
            context.progress,
        )


class MaskedLM(MaskingObjective):
    """Mask tokens and predict them.

    ``shift`` is the distance from the predicting hidden state to the target: 0 predicts at the
    masked position, as stock classes do; 1 predicts one position before, so that causal and masked
    phases train the same mapping (Charpentier and Samuel 2024). Compare ``causal``, which predicts
    every next token and masks nothing.
    """

    kind: Literal["masked"] = "masked"
    shift: Literal[0, 1] = 0

    predicts_tokens: ClassVar[bool] = True

    def targets_per_token(self, length: int) -> float:
        return self.selection.masking_rate.at(0.5)

    def states_per_token(self, length: int, group: Mapping[str, Objective]) -> float:
        return self.targets_per_token(length)

    def make_targets(
        self, batch: SequenceBatch, context: MaskingContext
    ) -> tuple[SequenceBatch, Targets]:
        masked, targets = super().make_targets(batch, context)
        return masked, self._drop_unreachable(targets, batch)

    def make_targets_at(
        self,
        selected: SelectedPositions,
        is_masked: BoolArray,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
    ) -> tuple[SequenceBatch, Targets]:
        """Put masks at all masked positions."""
        token_ids = np.where(is_masked, np.int32(vocabulary.specials.mask), batch.token_ids)
        targets = token_targets(batch, selected.positions, selected.weights)
        return replace(batch, token_ids=token_ids), self._drop_unreachable(targets, batch)

    def output_positions(self, targets: DeviceTargets) -> Tensor:
        return (targets.positions - self.shift).clamp(min=0)

    def hidden_states(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        return output.states_at(self.output_positions(targets))

    def _drop_unreachable(self, targets: Targets, batch: SequenceBatch) -> Targets:
        """Drop targets that would be predicted in the sequence before."""
        is_reachable = targets.positions % batch.token_ids.shape[1] >= self.shift
        return replace(targets, weights=targets.weights * is_reachable)
