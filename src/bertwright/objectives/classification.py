"""Classification of tokens or of sequences."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, Objective


class TokenClassification(Objective):
    """Classify every token with a linear head."""

    def build_head(self, context: HeadContext) -> nn.Module:
        return nn.Linear(context.encoder_config.width, self.num_classes(context.vocab_size))

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        logits = self.logits(targets, output, head)
        losses = F.cross_entropy(logits, targets.labels, reduction="none")
        is_correct = logits.argmax(-1) == targets.labels
        return targets.score(losses, is_correct)

    def logits(self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None) -> Tensor:
        assert head is not None, "classification has a head"
        return head(output.states_at(targets.positions)).float()


class SequenceClassification(TokenClassification):
    """Classify every sequence from its first token."""

    def build_head(self, context: HeadContext) -> nn.Module:
        num_classes = self.num_classes(context.vocab_size)
        return PooledClassifier(context.encoder_config.width, num_classes, context.pooler)

    def states_per_token(self, length: int, group: Mapping[str, Objective]) -> float:
        return 1 / length

    def output_positions(self, targets: DeviceTargets) -> Tensor:
        return targets.positions


class PooledClassifier(nn.Module):
    """A pooler with tanh and a linear classifier, from (M, D) to (M, C).

    ``pooler`` is a pooler that several classifiers share. Without ``is_dense`` there is none.
    """

    def __init__(
        self,
        width: int,
        num_classes: int,
        pooler: nn.Linear | None = None,
        is_dense: bool = True,
    ) -> None:
        super().__init__()
        self.pooler = (pooler or nn.Linear(width, width)) if is_dense else None
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.pooler is not None:
            hidden_states = torch.tanh(self.pooler(hidden_states))
        return self.classifier(hidden_states)
