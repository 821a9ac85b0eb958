"""Cross-entropy over a vocabulary, without keeping the logits.

The plain definition is ``F.cross_entropy(F.linear(hidden, table, bias), target, reduction="sum")``.
Here the gradients are made in the forward pass, from exponentials that are not yet normalised: the
scale of each row is applied to the small matrices, never to the (M, V) one. Rows are taken in
chunks, so the memory is bounded however many questions a step asks.

The *z-loss* keeps the normaliser Z of the softmax near 1: ``z_weight`` times (log Z)^2 is added to
the loss of every row (de Brebisson and Vincent 2016; Chowdhery et al. 2022, section 5), and
2 z_weight log Z times the probabilities to its gradient. *Smoothing* takes a share of the target
from the right piece and spreads it over all (Szegedy et al. 2016, section 7): all that it adds
follows from the mean of the logits, which is one more logit, of the mean row of the table. Where no
gradient is asked for there is neither: what is measured is the cross-entropy alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ELEMENTS = 32_000_000
"""Logits held at once: 64 MB in bfloat16."""

SAFE_LOGIT = 60.0
"""Up to this size exp(logit) and its sum are finite in float32, whatever the rest of the row."""

RowParts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Exponentials (M, V) in the dtype of the logits, their sums, losses, hits and log Z, each (M,)."""

LEAST_FACTOR = 1e-6
"""Below this 1 + 2 z_weight log Z is taken for it, which moves no gradient by more."""


def shifted(logits: Tensor, bias: Tensor | None, target: Tensor) -> RowParts:
    """The parts of a softmax, with the largest logit of each row taken off first."""
    x = _widened(logits, bias)
    top = x.amax(1, keepdim=True)
    exponentials = torch.exp(x - top)
    total = exponentials.sum(1)
    right = x.gather(1, target[:, None])
    log_total = total.log()
    loss = log_total + (top - right).squeeze(1)
    hits = (right >= top).squeeze(1)
    return exponentials.to(logits.dtype), total, loss, hits, log_total + top.squeeze(1)


def unshifted(logits: Tensor, bias: Tensor | None, target: Tensor) -> RowParts:
    """The same in one pass, for logits that are known to be small."""
    x = _widened(logits, bias)
    exponentials = torch.exp(x)
    total = exponentials.sum(1)
    right = x.gather(1, target[:, None]).squeeze(1)
    log_z = total.log()
    return exponentials.to(logits.dtype), total, log_z - right, right >= x.amax(1), log_z


def reach(hidden: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
    """A bound on the size of every logit: the largest row of each side, multiplied."""
    rows = [x.float().square().sum(1).amax().sqrt() for x in (hidden, table)]
    bound = rows[0] * rows[1]
    return bound if bias is None else bound + bias.abs().amax()


@dataclass(frozen=True)
class Pointwise:
    """What stands between the matrix products, plain or compiled."""

    shifted: Callable[[Tensor, Tensor | None, Tensor], RowParts] = shifted
    unshifted: Callable[[Tensor, Tensor | None, Tensor], RowParts] = unshifted
    reach: Callable[[Tensor, Tensor, Tensor | None], Tensor] = reach

    @staticmethod
    def compiled() -> "Pointwise":
        """Each function as one fused pass."""
        return Pointwise(
            torch.compile(shifted, dynamic=False),
            torch.compile(unshifted, dynamic=False),
            torch.compile(reach, dynamic=False),
        )

    def parts(
        self, hidden: Tensor, table: Tensor, bias: Tensor | None
    ) -> Callable[[Tensor, Tensor | None, Tensor], RowParts]:
        """The cheapest function that is safe here; on a GPU asking would cost a wait."""
        small = not hidden.is_cuda and float(self.reach(hidden, table, bias)) < SAFE_LOGIT
        return self.unshifted if small else self.shifted


PLAIN = Pointwise()


def _widened(logits: Tensor, bias: Tensor | None) -> Tensor:
    x = _wide(logits)
    return x if bias is None else x + bias


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cross_entropy(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    target: Tensor,
    weight: Tensor | None = None,
    pointwise: Pointwise = PLAIN,
    z_weight: float = 0.0,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The weighted sum of losses, and the weighted number of right answers (both 0-d float32).

    hidden (M, D), table (V, D), bias (V,) or None, target (M,) int64, weight (M,) float32 or None
    for ones. A tie with the largest logit counts as right. ``z_weight`` is that of the z-loss,
    ``smoothing`` the share of the target that all pieces have alike.
    """
    if not torch.is_grad_enabled():
        return _measure(hidden, table, bias, target, weight, pointwise)
    given = hidden, table, bias, target, weight, pointwise, z_weight, smoothing
    loss, right = _CrossEntropy.apply(*given)  # type: ignore[no-untyped-call]
    return loss, right


def _measure(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    target: Tensor,
    weight: Tensor | None,
    pointwise: Pointwise,
) -> tuple[Tensor, Tensor]:
    loss_sum, right_sum = hidden.new_zeros(2, dtype=torch.float32).unbind()
    parts = pointwise.parts(hidden, table, bias)
    for rows in _chunks(len(hidden), len(table)):
        _, _, loss, right, _ = parts(hidden[rows] @ table.t(), bias, target[rows])
        ones = 1.0 if weight is None else weight[rows]
        loss_sum = loss_sum + (loss * ones).sum()
        right_sum = right_sum + (right * ones).sum()
    return loss_sum, right_sum


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        target: Tensor,
        weight: Tensor | None,
        pointwise: Pointwise,
        z_weight: float,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        loss_sum, right_sum = hidden.new_zeros(2, dtype=torch.float32).unbind()
        smooth = _Smoothing(table, bias, smoothing) if smoothing else None
        parts = pointwise.parts(hidden, table, bias)
        grad_hidden = torch.empty_like(hidden)
        grad_both: Tensor | None = None
        for rows in _chunks(len(hidden), len(table)):
            some, asked = hidden[rows], target[rows]
            exponentials, total, loss, right, log_z = parts(some @ table.t(), bias, asked)
            ones = torch.ones_like(total) if weight is None else weight[rows]
            # From here on total x (probability - 1) at the target: the gradient but for the scale.
            short, share = total * torch.expm1(-loss), ones / total
            if smooth is not None:
                loss = smooth.loss(loss, log_z, some)
                short = short + smoothing * total
            if z_weight:
                loss = loss + z_weight * log_z.square()
                factor = 1.0 + 2.0 * z_weight * log_z
                factor = torch.where(factor.abs() < LEAST_FACTOR, LEAST_FACTOR, factor)
                # The scale takes the factor in; at the target it is taken back from what is asked.
                asked_there = (1.0 - smoothing) * total
                short, share = short + asked_there * (1.0 - 1.0 / factor), share * factor
            loss_sum = loss_sum + (loss * ones).sum()
            right_sum = right_sum + (right * ones).sum()
            rank = torch.arange(len(asked), device=asked.device)
            exponentials[rank, asked] = short.to(exponentials.dtype)
            share = share[:, None]
            grad_hidden[rows] = _wide(exponentials @ table) * share
            # The bias is one more column of the table, which meets a constant 1: it comes for free.
            inputs = some if bias is None else F.pad(some, (0, 1), value=1.0)
            if smooth is not None:
                grad_hidden[rows] -= smooth.of_hidden(ones)
                smooth.meet(inputs, ones)
            inputs = (inputs * share).to(some.dtype)
            grad_both = _add_product(grad_both, exponentials.t(), inputs)
        if smooth is not None and grad_both is not None:
            grad_both -= smooth.of_rows
        ctx.save_for_backward(grad_hidden, grad_both)
        ctx.table, ctx.bias_dtype = table, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(right_sum)
        return loss_sum, right_sum

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_both = ctx.saved_tensors
        scale = gradients[0]
        grad_table = grad_both[:, : grad_hidden.shape[1]]
        grad_bias = (grad_both[:, -1] * scale).to(ctx.bias_dtype) if ctx.bias_dtype else None
        grad_hidden = (grad_hidden * scale).to(grad_hidden.dtype)
        table = ctx.table
        if table.is_leaf and table.grad is not None and not table.is_cuda:  # scale is at hand
            table.grad.add_(grad_table, alpha=float(scale))
            return grad_hidden, None, grad_bias, None, None, None, None, None
        grad_table = (grad_table * scale).to(grad_table.dtype)
        return grad_hidden, grad_table, grad_bias, None, None, None, None, None


class _Smoothing:
    """The ``share`` of the target that all rows of a table have alike: the mean row stands for them
    all, and their gradients are one."""

    def __init__(self, table: Tensor, bias: Tensor | None, share: float) -> None:
        self.share, self.num_rows = share, len(table)
        self.row = _wide(table).mean(0)
        self.bias = 0.0 if bias is None else _wide(bias).mean()
        self.of_rows: Tensor | float = 0.0
        """(D or D + 1,): what every row, and its bias, is moved by."""

    def loss(self, loss: Tensor, log_z: Tensor, hidden: Tensor) -> Tensor:
        """The losses (M,) of a softmax with its log Z (M,), at hidden (M, D)."""
        mean_logit = _wide(hidden) @ self.row + self.bias
        return (1.0 - self.share) * loss + self.share * (log_z - mean_logit)

    def of_hidden(self, weight: Tensor) -> Tensor:
        """What hidden states of these weights (M,) are moved by, (M, D)."""
        return self.share * weight[:, None] * self.row

    def meet(self, inputs: Tensor, weight: Tensor) -> None:
        """Count in what rows are multiplied with: inputs (M, D or D + 1) of weights (M,)."""
        met = (_wide(inputs) * weight[:, None]).sum(0)
        self.of_rows = self.of_rows + self.share / self.num_rows * met


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    return left @ right if total is None else total.addmm_(left, right)


def _chunks(num_rows: int, vocabulary_size: int) -> list[slice]:
    """Equal chunks where the number of rows allows it, so that one compiled graph serves all."""
    count = max(1, -(-num_rows * vocabulary_size // CHUNK_ELEMENTS))
    while count < num_rows and num_rows % count and count % 64:
        count += 1
    size = -(-num_rows // count)
    return [slice(i, min(i + size, num_rows)) for i in range(0, num_rows, size)]
