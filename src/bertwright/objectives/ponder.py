"""Ponder time: how many blocks does each token pass through? (Graves 2016, section 2.1)."""

from typing import ClassVar, Literal

from torch import nn

from bertwright.batches.targets import BatchWithTargets, all_position_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.modules.attention.mask import Visibility
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import MaskingContext, Objective


class PonderCost(Objective):
    """The mean ponder time of real tokens, as a penalty on the number of blocks.

    Ponder time is the number of blocks plus the remainder of the last one. The objective needs a
    depth that halts. Halting before the last block counts as correct.
    """

    kind: Literal["ponder"] = "ponder"
    weight: NumberOrSchedule = ConstantSchedule(value=0.01)

    capabilities: ClassVar[Capabilities] = Capabilities(is_classification=False, needs_halting=True)

    @property
    def visibility(self) -> Visibility | None:
        return None

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return batch, all_position_targets(batch)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        ponder_times, has_halted = (
            output.aux_outputs[name].flatten()[targets.positions] for name in ("ponder", "halted")
        )
        return targets.score(ponder_times, has_halted)
