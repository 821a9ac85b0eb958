"""Replaced token detection: is this token the original one? (Clark et al. 2020)."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.batches.targets import BatchWithTargets, Targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.modules.feed_forward import ACTIVATIONS
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, MaskingContext, Objective


class ReplacedTokenDetection(Objective):
    """Predict for every real token, special ones included, whether it was replaced.

    The objective must be listed before the generator. A sampled token that equals the original does
    not count as replaced.
    """

    kind: Literal["replaced-token"] = "replaced-token"

    capabilities: ClassVar[Capabilities] = Capabilities(
        detects_replacements=True, class_labels=("original", "replaced")
    )

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        is_real = batch.is_real.ravel()
        positions = np.arange(is_real.size, dtype=np.int64)
        labels = batch.token_ids.ravel().astype(np.int64)
        return batch, Targets(positions, labels, is_real.astype(np.float32))

    def build_head(self, context: HeadContext) -> nn.Module:
        return ReplacedTokenHead(context.encoder_config.width)

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        assert isinstance(head, ReplacedTokenHead)
        logits = head(output.hidden_states.flatten(0, 1)).float()
        is_replaced = output.token_ids.flatten() != targets.labels
        losses = F.binary_cross_entropy_with_logits(logits, is_replaced.float(), reduction="none")
        loss = targets.score(losses, (logits > 0) == is_replaced)
        return replace(loss, binary_predictions=(logits.detach(), is_replaced))

    def logits(self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None) -> Tensor:
        assert isinstance(head, ReplacedTokenHead)
        logits = head(output.states_at(targets.positions)).float()
        return torch.stack((torch.zeros_like(logits), logits), dim=-1)

    def true_labels(self, labels: Tensor, input_ids: Tensor) -> Tensor:
        return (input_ids != labels).long()

    def target_label(self, label: int, token_name: Callable[[int], str]) -> str:
        return f"is it {token_name(label)}?"


class ReplacedTokenHead(nn.Module):
    """A dense layer, GELU and one logit, from (M, D) to (M,)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.logit = nn.Linear(width, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.logit(ACTIVATIONS["gelu"](self.dense(hidden_states)))[..., 0]
