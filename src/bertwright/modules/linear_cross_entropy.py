"""Cross-entropy over a vocabulary, without keeping the logits.

The result is ``F.cross_entropy(F.linear(hidden_states, table, bias), target, reduction="sum")``.
The gradients are computed in the forward pass from unnormalised exponentials, and the scale of each
row is applied to the small matrices instead of the (M, V) one. Rows are processed in chunks, which
bounds the memory for any number of targets.

The *z-loss* keeps the normaliser Z of the softmax near 1: it adds ``z_weight`` times (log Z)^2 to
the loss of every row (de Brebisson and Vincent 2016; Chowdhery et al. 2022, section 5), and so
2 z_weight log Z times the probabilities to its gradient. *Label smoothing* spreads a fraction of
the target over all tokens (Szegedy et al. 2016, section 7). It depends only on the mean logit,
which is the logit of the mean row of the table. Both are left out without gradients, so evaluation
measures the cross-entropy alone.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertwright.modules.dtypes import at_least_float32
from bertwright.modules.embedding_lookup import in_place_gradient

CHUNK_ELEMENTS = 32_000_000
"""Number of logits in memory at once, 64 MB in bfloat16."""

SAFE_LOGIT = 60.0
"""Maximum logit for which exp(logit) and its sum over the vocabulary are finite in float32."""

SoftmaxParts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Exponentials (M, V) in the dtype of the logits; their sums, losses, hits and log Z, (M,) each."""

MIN_FACTOR = 1e-6
"""Lower bound of |1 + 2 z_weight log Z|, which also bounds the change of any gradient."""


def softmax_with_shift(logits: Tensor, bias: Tensor | None, target: Tensor) -> SoftmaxParts:
    """Return the parts of a softmax, after subtracting the largest logit of each row."""
    x = _float32_logits(logits, bias)
    top = x.amax(1, keepdim=True)
    exponentials = torch.exp(x - top)
    total = exponentials.sum(1)
    correct = x.gather(1, target[:, None])
    log_total = total.log()
    loss = log_total + (top - correct).squeeze(1)
    hits = (correct >= top).squeeze(1)
    return exponentials.to(logits.dtype), total, loss, hits, log_total + top.squeeze(1)


def softmax_without_shift(logits: Tensor, bias: Tensor | None, target: Tensor) -> SoftmaxParts:
    """Return the parts of a softmax in one pass, for logits that are known to be small."""
    x = _float32_logits(logits, bias)
    exponentials = torch.exp(x)
    total = exponentials.sum(1)
    correct = x.gather(1, target[:, None]).squeeze(1)
    log_z = total.log()
    return exponentials.to(logits.dtype), total, log_z - correct, correct >= x.amax(1), log_z


def logit_bound(hidden_states: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
    """Return an upper bound on the magnitude of all logits, from the product of largest norms."""
    norms = [x.float().square().sum(1).amax().sqrt() for x in (hidden_states, table)]
    bound = norms[0] * norms[1]
    return bound if bias is None else bound + bias.abs().amax()


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that runs between the matrix products into one fused pass."""
    return torch.compile(function, dynamic=False)


def _choose_softmax(
    hidden_states: Tensor, table: Tensor, bias: Tensor | None, is_compiled: bool
) -> Callable[[Tensor, Tensor | None, Tensor], SoftmaxParts]:
    """Return the cheapest safe function; on a GPU the check would force a synchronisation."""
    get_bound = _compile(logit_bound) if is_compiled else logit_bound
    is_small = not hidden_states.is_cuda and (
        float(get_bound(hidden_states, table, bias)) < SAFE_LOGIT
    )
    softmax = softmax_without_shift if is_small else softmax_with_shift
    return _compile(softmax) if is_compiled else softmax


def _float32_logits(logits: Tensor, bias: Tensor | None) -> Tensor:
    x = at_least_float32(logits)
    return x if bias is None else x + bias


def linear_cross_entropy(
    hidden_states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    target: Tensor,
    weight: Tensor | None = None,
    z_weight: float = 0.0,
    smoothing: float = 0.0,
    is_compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of losses and the weighted number correct (both 0-d float32).

    Shapes: ``hidden_states`` (M, D), ``table`` (V, D), ``bias`` (V,) or None, ``target`` (M,)
    int64, ``weight`` (M,) float32 or None for ones. A tie with the largest logit is correct.
    ``z_weight`` is the weight of the z-loss, ``smoothing`` the fraction of the target that is
    spread over all tokens. If ``is_compiled``, the functions between the matrix products are
    compiled.
    """
    if not len(target):
        loss_sum = F.linear(hidden_states, table, bias).sum(dtype=torch.float32)
        return loss_sum, loss_sum.detach()
    if not torch.is_grad_enabled():
        return _loss_without_gradient(hidden_states, table, bias, target, weight, is_compiled)
    arguments = hidden_states, table, bias, target, weight, z_weight, smoothing, is_compiled
    loss_sum, num_correct = _LinearCrossEntropyFunction.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss_sum, num_correct


def _loss_without_gradient(
    hidden_states: Tensor,
    table: Tensor,
    bias: Tensor | None,
    target: Tensor,
    weight: Tensor | None,
    is_compiled: bool,
) -> tuple[Tensor, Tensor]:
    loss_sum, num_correct = hidden_states.new_zeros(2, dtype=torch.float32).unbind()
    softmax = _choose_softmax(hidden_states, table, bias, is_compiled)
    for rows in _row_chunks(len(hidden_states), len(table)):
        _, _, loss, correct, _ = softmax(hidden_states[rows] @ table.t(), bias, target[rows])
        row_weights = 1.0 if weight is None else weight[rows]
        loss_sum = loss_sum + (loss * row_weights).sum()
        num_correct = num_correct + (correct * row_weights).sum()
    return loss_sum, num_correct


class _LinearCrossEntropyFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: Tensor,
        table: Tensor,
        bias: Tensor | None,
        target: Tensor,
        weight: Tensor | None,
        z_weight: float,
        smoothing: float,
        is_compiled: bool,
    ) -> tuple[Tensor, Tensor]:
        loss_sum, num_correct = hidden_states.new_zeros(2, dtype=torch.float32).unbind()
        label_smoothing = _LabelSmoothing(table, bias, smoothing) if smoothing else None
        softmax = _choose_softmax(hidden_states, table, bias, is_compiled)
        grad_hidden = torch.empty_like(hidden_states)
        grad_table_bias: Tensor | None = None
        for rows in _row_chunks(len(hidden_states), len(table)):
            states, row_targets = hidden_states[rows], target[rows]
            exponentials, total, loss, correct, log_z = softmax(
                states @ table.t(), bias, row_targets
            )
            row_weights = torch.ones_like(total) if weight is None else weight[rows]
            # At the target: total x (probability - 1), which is the gradient before scaling.
            target_gradient, row_scale = total * torch.expm1(-loss), row_weights / total
            if label_smoothing is not None:
                loss = label_smoothing.loss(loss, log_z, states)
                target_gradient = target_gradient + smoothing * total
            if z_weight:
                loss = loss + z_weight * log_z.square()
                factor = 1.0 + 2.0 * z_weight * log_z
                factor = torch.where(factor.abs() < MIN_FACTOR, MIN_FACTOR, factor)
                # The factor of the z-loss applies to the probabilities, not to the target itself.
                target_mass = (1.0 - smoothing) * total
                target_gradient, row_scale = (
                    target_gradient + target_mass * (1.0 - 1.0 / factor),
                    row_scale * factor,
                )
            loss_sum = loss_sum + (loss * row_weights).sum()
            num_correct = num_correct + (correct * row_weights).sum()
            row_indices = torch.arange(len(row_targets), device=row_targets.device)
            exponentials[row_indices, row_targets] = target_gradient.to(exponentials.dtype)
            row_scale = row_scale[:, None]
            grad_hidden[rows] = at_least_float32(exponentials @ table) * row_scale
            # The bias is an additional column of the table, multiplied by a constant 1.
            inputs = states if bias is None else F.pad(states, (0, 1), value=1.0)
            if label_smoothing is not None:
                grad_hidden[rows] -= label_smoothing.hidden_gradient(row_weights)
                label_smoothing.accumulate(inputs, row_weights)
            inputs = (inputs * row_scale).to(states.dtype)
            if grad_table_bias is None:
                grad_table_bias = exponentials.t() @ inputs
            else:
                grad_table_bias.addmm_(exponentials.t(), inputs)
        if label_smoothing is not None and grad_table_bias is not None:
            grad_table_bias -= label_smoothing.shared_gradient
        ctx.save_for_backward(grad_hidden, grad_table_bias)
        ctx.table, ctx.bias_dtype = table, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(num_correct)
        return loss_sum, num_correct

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_table_bias = ctx.saved_tensors
        scale = output_gradients[0]
        grad_table = grad_table_bias[:, : grad_hidden.shape[1]]
        grad_bias = (grad_table_bias[:, -1] * scale).to(ctx.bias_dtype) if ctx.bias_dtype else None
        grad_hidden = (grad_hidden * scale).to(grad_hidden.dtype)
        in_place = in_place_gradient(ctx.table)
        if in_place is not None and not in_place.is_cuda:  # no sync for scale
            in_place.add_(grad_table, alpha=float(scale))
            return grad_hidden, None, grad_bias, None, None, None, None, None
        grad_table = (grad_table * scale).to(grad_table.dtype)
        return grad_hidden, grad_table, grad_bias, None, None, None, None, None


class _LabelSmoothing:
    """Label smoothing, with loss and gradient computed from the mean row of the table."""

    def __init__(self, table: Tensor, bias: Tensor | None, smoothing: float) -> None:
        self.smoothing, self.vocab_size = smoothing, len(table)
        self.mean_embedding = at_least_float32(table).mean(0)
        self.bias = 0.0 if bias is None else at_least_float32(bias).mean()
        self.shared_gradient: Tensor | float = 0.0
        """Gradient that every row of the table and its bias share, (D or D + 1,)."""

    def loss(self, loss: Tensor, log_z: Tensor, hidden_states: Tensor) -> Tensor:
        """Return smoothed losses (M,), given losses and log Z (M,) at hidden states (M, D)."""
        mean_logit = at_least_float32(hidden_states) @ self.mean_embedding + self.bias
        return (1.0 - self.smoothing) * loss + self.smoothing * (log_z - mean_logit)

    def hidden_gradient(self, weight: Tensor) -> Tensor:
        """Return the gradient (M, D) of the hidden states of targets with these weights (M,)."""
        return self.smoothing * weight[:, None] * self.mean_embedding

    def accumulate(self, inputs: Tensor, weight: Tensor) -> None:
        """Add the gradient of inputs (M, D or D + 1) with weights (M,)."""
        total = (at_least_float32(inputs) * weight[:, None]).sum(0)
        self.shared_gradient = self.shared_gradient + self.smoothing / self.vocab_size * total


def _row_chunks(num_targets: int, vocab_size: int) -> list[slice]:
    """Return slices of rows, of equal size if possible, so that one compiled graph serves all."""
    count = max(1, -(-num_targets * vocab_size // CHUNK_ELEMENTS))
    while count < num_targets and num_targets % count and count % 64:
        count += 1
    size = -(-num_targets // count)
    return [slice(i, min(i + size, num_targets)) for i in range(0, num_targets, size)]
