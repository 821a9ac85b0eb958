"""Span boundary objective: predict a span from the tokens around it (Joshi et al. 2019, 3.2)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.batches.targets import BatchWithTargets, span_boundary_targets
from bertwright.batches.token_info import SequenceBatch
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.feed_forward import ACTIVATIONS
from bertwright.modules.linear_cross_entropy import linear_cross_entropy
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, MaskingContext, Objective


class SpanBoundary(Objective):
    """Predict the tokens masked by another objective, ``of``, from the span's boundaries.

    The head gets the hidden states of the two positions around the span, and an embedding of the
    offset within the span. There are ``longest`` offset embeddings of width ``position_width``. The
    output weights are the token embeddings, with a separate bias.
    """

    kind: Literal["span-boundary"] = "span-boundary"
    of: str = "masked"
    longest: int = Field(default=20, ge=1, le=65_536)
    position_width: int = Field(default=200, ge=1, le=65_536)

    capabilities: ClassVar[Capabilities] = Capabilities(uses_embedding_table=True)

    def order_conflict(
        self, preceding: Mapping[str, Objective], following: Mapping[str, Objective]
    ) -> str | None:
        if self.of in preceding:
            return None
        return f"predicts tokens masked by {self.of!r}: list {self.of!r} before it"

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return batch, span_boundary_targets(batch, context.earlier_targets[self.of], self.longest)

    def build_head(self, context: HeadContext) -> nn.Module:
        width = self.position_width
        return SpanBoundaryHead(context.encoder_config, context.vocab_size, self.longest, width)

    def states_per_token(self, length: int, group: Mapping[str, Objective]) -> float:
        return 2 * group[self.of].targets_per_token(length)

    def head_flops(
        self, encoder: EncoderConfig, vocab_size: int, length: int, group: Mapping[str, Objective]
    ) -> float:
        width, narrow = encoder.width, encoder.token_embedding_width
        dense = (2 * width + self.position_width) * width + width * narrow
        return group[self.of].targets_per_token(length) * 2 * (dense + narrow * vocab_size)

    def output_positions(self, targets: DeviceTargets) -> Tensor:
        return torch.cat(
            (targets.extra_inputs["left_positions"], targets.extra_inputs["right_positions"])
        )

    def compute_loss(
        self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None
    ) -> Loss:
        assert isinstance(head, SpanBoundaryHead)
        hidden = self._boundary_states(targets, output, head)
        table = output.embedding_table
        loss, num_correct = linear_cross_entropy(
            hidden, table, head.bias, targets.labels, targets.weights
        )
        return Loss(loss, targets.total_weight, num_correct)

    def logits(self, targets: DeviceTargets, output: ModelOutput, head: nn.Module | None) -> Tensor:
        assert isinstance(head, SpanBoundaryHead)
        return nn.functional.linear(
            self._boundary_states(targets, output, head), output.embedding_table, head.bias
        )

    def _boundary_states(
        self, targets: DeviceTargets, output: ModelOutput, head: "SpanBoundaryHead"
    ) -> Tensor:
        left, right = (
            output.states_at(targets.extra_inputs["left_positions"]),
            output.states_at(targets.extra_inputs["right_positions"]),
        )
        return head(left, right, targets.extra_inputs["span_offsets"])


class SpanBoundaryHead(nn.Module):
    """Two dense layers with GELU and norm, from (M, D) twice and offsets (M,) to (M, E)."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"bias": ParameterRole("bias")}

    def __init__(
        self, encoder: EncoderConfig, vocab_size: int, max_offset: int, position_width: int
    ) -> None:
        super().__init__()
        narrow = encoder.token_embedding_width
        self.positions = empty_embedding(max_offset, position_width)
        self.first = nn.Linear(2 * encoder.width + position_width, encoder.width)
        self.first_norm = encoder.norm.build(encoder.width)
        self.second = nn.Linear(encoder.width, narrow)
        self.second_norm = encoder.norm.build(narrow)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, left: Tensor, right: Tensor, offsets: Tensor) -> Tensor:
        position = embedding_lookup(self.positions.weight, offsets)
        joined = torch.cat((left, right, position.to(left.dtype)), dim=-1)
        hidden = self.first_norm(ACTIVATIONS["gelu"](self.first(joined)))
        return self.second_norm(ACTIVATIONS["gelu"](self.second(hidden)))
