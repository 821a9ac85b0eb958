"""Whether a compiled step computes what the uncompiled one does.

A C++ compiler may turn right code into wrong code: GCC 12 with its generic tuning made the gradient
of rotary keys garbage. So the loss and the gradient of every parameter of one compiled step are
compared with those of the uncompiled step on the same batch, and so is what clipping and the
optimiser make of the gradient.

In bfloat16 the two round differently, and neither is right: an uncompiled sum over all positions of
a step may be off by a tenth. Both are then held against the uncompiled step in float32, and the
compiled one may be off by little more than the other. Gradients are compared as a whole and row by
row, since wrong code may spoil a few rows only.
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bertwright.axes import Precision
from bertwright.training.batch_source import MicroBatch
from bertwright.training.clock import Place
from bertwright.training.compilation.verdicts import Verdict
from bertwright.training.loop import Job, weighted_loss

TOLERANCES: Mapping[Precision, float] = {"float32": 1e-3, "bf16": 0.05}
"""By how much of its norm the gradient of a parameter may be off."""

ROW_TOLERANCE = 5.0
"""A single row of a gradient may be off by so many times as much."""

LOSS_TOLERANCES: Mapping[Precision, float] = {"float32": 1e-4, "bf16": 1e-2}

ROUNDING = 3.0
"""A compiled value may be off by so many times the error of the uncompiled one."""

LEAST_SIZE = 1e-2
"""A gradient counts for at least this part of the mean size over the model: those of the biases of
keys are zero but for rounding, since a softmax does not change with them."""

PASS_TOLERANCES: Mapping[Precision, float] = {"float32": 1e-3, "bf16": 0.02}
"""By how much an element may be off that a pass of the optimiser writes."""


@dataclass(frozen=True)
class _Values:
    """The loss of a step and its gradient, (T,) float32."""

    loss: float
    gradient: Tensor


def verdict_on(job: Job[MicroBatch], place: Place) -> Verdict:
    """Compare the compiled step of a job with the uncompiled one on the first micro-batch of a
    place. The job is left as it was.

    A batch whose uncompiled loss or gradient is not finite is not compared: it is the loop that
    stops there.
    """
    kept = {procedure: procedure.state() for procedure in job.procedures}

    def values() -> _Values:
        try:
            return _values(job, place)
        finally:
            for procedure, state in kept.items():
                procedure.load(state)

    with torch.compiler.set_stance("force_eager"):
        exact = plain = values()
        if job.parameters.precision == "bf16":
            with job.parameters.in_float32():
                exact = values()
    if not math.isfinite(exact.loss) or not exact.gradient.isfinite().all():
        return Verdict(True)
    difference = _differing_values(job, exact, plain, values())
    difference = difference or _differing_update(job, exact.gradient)
    return Verdict(difference is None, difference or "")


def train_step(job: Job[MicroBatch], place: Place) -> None:
    """Make one step on the first micro-batch of a place."""
    gradient = _values(job, place).gradient.to(job.parameters.gradient.dtype)
    _, factor = job.clip(gradient)
    job.update.step(gradient, job.rate(place.middle), factor)


def _values(job: Job[MicroBatch], place: Place) -> _Values:
    batch, weights = job.batch(place), job.weights(place)
    job.parameters.clear_gradient()
    losses = job.losses(batch.micro_batches[0], place)
    loss = weighted_loss(losses, weights, batch.counts, job.parameters.master.device)
    loss.backward()
    gradient = job.parameters.step_gradient().float().clone()
    job.parameters.clear_gradient()
    return _Values(float(loss.detach()), gradient)


def _differing_values(
    job: Job[Any], exact: _Values, plain: _Values, compiled: _Values
) -> str | None:
    precision = job.parameters.precision
    error, size = abs(compiled.loss - exact.loss), max(abs(exact.loss), 1e-3)
    allowed = ROUNDING * abs(plain.loss - exact.loss) + LOSS_TOLERANCES[precision] * size
    if not error <= allowed:
        return _off("the loss", error / size)
    typical = float(exact.gradient.norm()) / math.sqrt(len(exact.gradient))
    views = [job.parameters.views(values.gradient) for values in (exact, plain, compiled)]
    for name in views[0]:
        right, other, checked = (view[name] for view in views)
        error = _error_of(right, other, checked, TOLERANCES[precision], LEAST_SIZE * typical)
        if error is not None:
            return _off(f"the gradient of {name}", error)
    return None


def _error_of(
    right: Tensor, other: Tensor, checked: Tensor, tolerance: float, least: float
) -> float | None:
    """Return the relative error of a checked tensor that is too far off, None where none is.

    ``other`` is what else was computed for ``right``; ``least`` is the smallest size of an element
    that counts.
    """
    whole = tuple(x.reshape(1, -1) for x in (right, other, checked))
    width = right.shape[-1] if right.ndim else 1
    rows = tuple(x.reshape(-1, width) for x in (right, other, checked))
    for (exact, plain, compiled), allowance in (
        (whole, tolerance),
        (rows, ROW_TOLERANCE * tolerance),
    ):
        norms = exact.norm(dim=1)
        mean = norms.square().mean().sqrt()
        sizes = norms.maximum(mean).clamp(min=least * math.sqrt(exact.shape[1]))
        errors = (compiled - exact).norm(dim=1)
        wrong = ~(errors <= ROUNDING * (plain - exact).norm(dim=1) + allowance * sizes)
        if wrong.any():
            return float((errors / sizes)[wrong].max())
    return None


def _differing_update(job: Job[Any], gradient: Tensor) -> str | None:
    """Compare what the compiled passes of clipping and of the optimiser make of a gradient (T,)
    with what the uncompiled ones do."""
    parameters, update = job.parameters, job.update
    master = parameters.master.clone()
    state = {name: tensor.clone() for name, tensor in update.state().items()}
    gradient = gradient.to(parameters.gradient.dtype)
    passes = [*job.clip.compilables(), *update.compilables()]
    with ExitStack() as comparisons:
        errors = [comparisons.enter_context(each_pass.comparing()) for each_pass in passes]
        _, factor = job.clip(gradient)
        update.step(gradient, 1.0, factor)
    parameters.master.copy_(master)
    parameters.refresh()
    update.load(state)
    for compiled, differences in zip(passes, errors, strict=True):
        error = max(differences, default=0.0)
        if not error <= PASS_TOLERANCES[parameters.precision]:
            return _off(f"{compiled.name} of the optimiser", error)
    return None


def _off(name: str, error: float) -> str:
    return f"{name} is off by {error:.1%}" if math.isfinite(error) else f"{name} is not finite"
