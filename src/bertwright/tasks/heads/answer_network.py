"""A stochastic answer network: several steps of reasoning over a pair of texts (MT-DNN)."""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.modules.dropout_rng import DropoutRng, dropout, uniform_for_step
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.tasks.heads.head import HeadConfig, TaskHead, TaskHeadContext
from bertwright.tasks.heads.pooling import HeadPooling

STEP_STREAM, KEPT_STEP_STREAM, STATE_STREAM = 2, 3, 4
"""Random streams of a head; the first two belong to ``TaskHead``."""


class AnswerNetworkHeadConfig(HeadConfig):
    """A recurrent network that attends to one text of a pair several times.

    Its state starts from the second text (hypothesis). In each of ``steps`` it reads the first text
    (premise), and predicts the class; the prediction is the mean of the probabilities. In training
    each step's prediction is dropped with probability ``step_dropout``. Source: Liu et al. 2018, as
    used by Liu et al. 2019, equations 4 to 8.
    """

    kind: Literal["san"] = "san"
    is_recurrent: ClassVar[bool] = True
    pooling: HeadPooling = "pair"
    steps: int = Field(default=5, ge=1, le=64)
    step_dropout: float = Field(default=0.1, ge=0, lt=1)

    def build(self, context: TaskHeadContext) -> TaskHead:
        if not context.recipe.encoder.distinguishes_segments:
            raise UserError(
                "head.kind: san tells the texts of a pair apart by their segments, and this "
                "encoder has none: choose another head"
            )
        width = self._input_width(context)
        trunk = AnswerNetwork(self, width, context.num_outputs, context.dropout_rate)
        without_classifier = replace(context, num_outputs=0)
        mix, norm = self._build_mix(context.recipe), self.build_input_norm(width)
        rates = (context.dropout_rate, 0.0)
        return TaskHead(self, trunk, mix, norm, width, without_classifier, rates)


class AnswerNetwork(nn.Module):
    """The network, from the hidden states of a pair of texts to log-probabilities."""

    def __init__(
        self, config: AnswerNetworkHeadConfig, width: int, num_classes: int, dropout_rate: float
    ) -> None:
        super().__init__()
        self.num_steps, self.step_dropout = config.steps, config.step_dropout
        self.dropout_rate = dropout_rate
        self.start = nn.Linear(width, 1, bias=False)
        self.attention = nn.Linear(width, width, bias=False)
        self.cell = nn.GRUCell(width, width)
        self.classifier = nn.Linear(4 * width, num_classes)

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {
        "cell.weight_ih": ParameterRole("matrix", num_parts=3),
        "cell.weight_hh": ParameterRole("matrix", num_parts=3),
        "cell.bias_ih": ParameterRole("bias"),
        "cell.bias_hh": ParameterRole("bias"),
    }

    def forward(
        self,
        hidden_states: Tensor,
        is_first: Tensor,
        is_second: Tensor,
        dropout_rng: DropoutRng | None = None,
    ) -> Tensor:
        """Map hidden states (B, L, D) to log-probabilities (B, C).

        ``is_first`` and ``is_second`` (B, L) mark the tokens of the texts.
        """
        state = _weighted_mean(self.start(hidden_states)[..., 0], is_second, hidden_states)
        predictions: list[Tensor] = []
        for step in range(self.num_steps):
            scores = torch.einsum("bd,bld->bl", self.attention(state), hidden_states)
            memory = _weighted_mean(scores, is_first, hidden_states)
            features = torch.cat((state, memory, (state - memory).abs(), state * memory), dim=-1)
            predictions.append(self.classifier(features).float().log_softmax(-1))
            if step + 1 < self.num_steps:
                state = dropout(state, self.dropout_rate, dropout_rng, STATE_STREAM + step)
                state = self.cell(memory, state)
        log_probabilities = torch.stack(predictions, dim=1)
        weights = self._step_weights(log_probabilities, dropout_rng)
        return torch.logsumexp(log_probabilities + weights.log()[..., None], dim=1)

    def _step_weights(self, log_probabilities: Tensor, dropout_rng: DropoutRng | None) -> Tensor:
        """Return the weight of each step's prediction, (B, K); at least one is kept."""
        num_sequences, num_steps, _ = log_probabilities.shape
        is_kept = log_probabilities.new_ones(num_sequences, num_steps, dtype=torch.bool)
        if dropout_rng is not None and self.step_dropout:
            row = torch.arange(num_sequences, device=log_probabilities.device)
            row = row + dropout_rng.first_sequence
            step = torch.arange(num_steps, device=row.device)
            uniform = uniform_for_step(dropout_rng, row[:, None] * num_steps + step, STEP_STREAM)
            kept_step = (uniform_for_step(dropout_rng, row, KEPT_STEP_STREAM) * num_steps).long()
            is_kept = (uniform >= self.step_dropout) | (step == kept_step[:, None])
        weights = is_kept.float()
        return weights / weights.sum(1, keepdim=True)


def _weighted_mean(scores: Tensor, is_member: Tensor, hidden_states: Tensor) -> Tensor:
    """Return the mean (B, D) of hidden states (B, L, D), weighted by the softmax of the scores."""
    masked = scores.float().masked_fill(~is_member, torch.finfo(torch.float32).min)
    weights = masked.softmax(-1).to(hidden_states.dtype)
    return torch.einsum("bl,bld->bd", weights, hidden_states)
