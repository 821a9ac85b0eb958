"""Shuffled tokens: is this token still at its position? (Yamaguchi et al. 2021, section 2.1)."""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.batches.masking import MaskSelection, TokenSelection
from bertwright.batches.targets import Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.schedules import ConstantSchedule
from bertwright.objectives import Objective
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, MaskingContext


class ShuffledTokens(Objective):
    """Rotate the selected tokens of each sequence and classify every position as moved or not."""

    kind: Literal["shuffled-tokens"] = "shuffled-tokens"
    selection: MaskSelection = TokenSelection(masking_rate=ConstantSchedule(value=0.1))

    capabilities: ClassVar[Capabilities] = Capabilities(class_labels=("in place", "moved"))

    def make_targets(
        self, batch: SequenceBatch, context: MaskingContext
    ) -> tuple[SequenceBatch, Targets]:
        rng = context.rng.fold_in("shuffled-tokens")
        selected = self.selection.select(batch, context.vocabulary, rng, context.progress)
        token_ids = batch.token_ids.copy()
        for sequence, positions, weights in zip(
            token_ids, selected.positions, selected.weights, strict=True
        ):
            rotated = positions[weights > 0]
            sequence[rotated] = np.roll(sequence[rotated], 1)
        moved = (token_ids != batch.token_ids).ravel()
        weights = (batch.is_real & ~batch.is_special).ravel().astype(np.float32)
        targets = Targets(np.arange(moved.size), moved.astype(np.int64), weights)
        return replace(batch, token_ids=token_ids), targets

    def build_head(self, context: HeadContext) -> nn.Module:
        return nn.Linear(context.encoder_config.width, 2)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        logits = self.logits(targets, output, head)
        losses = F.cross_entropy(logits, targets.labels, reduction="none")
        return targets.score(losses, logits.argmax(-1) == targets.labels)

    def logits(self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None) -> Tensor:
        assert head is not None
        return head(output.states_at(targets.positions)).float()
