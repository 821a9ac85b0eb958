"""Activation regularisation: AR and TAR (Merity et al. 2017).

They predict nothing, but have a loss and a weight like other objectives, and allow any attention
mask.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from bertwright.batches.targets import (
    BatchWithTargets,
    all_position_targets,
    all_transition_targets,
)
from bertwright.batches.token_info import SequenceBatch
from bertwright.modules.attention.mask import Visibility
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import MaskingContext, Objective


class ActivationPenalty(Objective):
    """A base class: the mean square over the width of the hidden states."""

    capabilities: ClassVar[Capabilities] = Capabilities(is_classification=False)

    @property
    def visibility(self) -> Visibility | None:
        return None

    def _penalty(self, values: Tensor, targets: DeviceTargets) -> Loss:
        squares = values.square().mean(1)
        return targets.score(squares, torch.zeros_like(squares))


class ActivationSize(ActivationPenalty):
    """AR: the mean square of the hidden states after dropout."""

    kind: Literal["activation-size"] = "activation-size"

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return batch, all_position_targets(batch)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        return self._penalty(output.states_at(targets.positions), targets)


class ActivationChange(ActivationPenalty):
    """TAR: the mean square of the difference of consecutive hidden states.

    With locked dropout only the kept units count; the published code has the states before dropout.
    """

    kind: Literal["activation-change"] = "activation-change"

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return batch, all_transition_targets(batch)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        return self._penalty(
            output.states_at(targets.positions + 1) - output.states_at(targets.positions), targets
        )
