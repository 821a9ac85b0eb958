"""Causal language modelling: which token comes next? (Radford et al. 2018)."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.batches.arrays import BoolArray, IntArray
from bertwright.batches.masking import SelectedPositions
from bertwright.batches.targets import (
    BatchWithTargets,
    Targets,
    bidirectional_targets,
    next_token_targets,
    previous_token_targets,
)
from bertwright.batches.token_info import SequenceBatch
from bertwright.batches.vocabulary import Vocabulary
from bertwright.modules.attention.mask import CausalVisibility as CausalRule
from bertwright.modules.attention.mask import (
    ForwardBackwardVisibility,
    ReverseCausalVisibility,
    Visibility,
)
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, ModelOutput
from bertwright.objectives.objective import MaskingContext, Objective

VISIBILITY_BY_DIRECTION: dict[str, Visibility] = {
    "forward": CausalRule(),
    "backward": ReverseCausalVisibility(),
    "both": ForwardBackwardVisibility(),
}


class CausalLM(Objective):
    """Predict the next token at every position.

    ``direction: backward`` predicts the previous token from those that follow. ``both`` predicts
    the next token from the first half of a hidden state and the previous token from the second
    half; the loss is the mean of the two language models (Peters et al. 2018).
    """

    kind: Literal["causal"] = "causal"
    direction: Literal["forward", "backward", "both"] = "forward"

    capabilities: ClassVar[Capabilities] = Capabilities(prediction="causal", predicts_tokens=True)

    @property
    def visibility(self) -> Visibility:
        return VISIBILITY_BY_DIRECTION[self.direction]

    def targets_per_token(self, length: int) -> float:
        return 2.0 if self.direction == "both" else 1.0

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        functions = {
            "forward": next_token_targets,
            "backward": previous_token_targets,
            "both": bidirectional_targets,
        }
        return batch, functions[self.direction](batch)

    def make_targets_at(
        self,
        selected: SelectedPositions,
        is_masked: BoolArray,
        batch: SequenceBatch,
        vocabulary: Vocabulary,
    ) -> BatchWithTargets | None:
        """Return targets predicted from the tokens before them; None for a backward model."""
        if self.direction == "backward":
            return None
        with_targets = super().make_targets_at(selected, is_masked, batch, vocabulary)
        if self.direction == "forward" or with_targets is None:
            return with_targets
        is_next = np.ones(len(with_targets[1].positions), np.int64)
        return batch, replace(with_targets[1], extra_inputs={"is_next": is_next})

    def label_positions(self, targets: Targets) -> IntArray:
        forward = np.full_like(targets.positions, self.direction != "backward")
        is_next = targets.extra_inputs.get("is_next", forward)
        return targets.positions + np.where(is_next == 1, 1, -1)

    def hidden_states(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        states = output.states_at(targets.positions)
        if self.direction != "both":
            return states
        first, second = states.chunk(2, dim=1)
        return torch.where(targets.extra_inputs["is_next"][:, None] == 1, first, second)
