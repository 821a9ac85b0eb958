"""Check that a compiled step agrees with the uncompiled one.

A C++ compiler may miscompile: GCC 12 with its generic tuning corrupted the gradient of rotary keys.
So the loss and all gradients of one compiled step are compared with the uncompiled step on the same
batch, and so are gradient clipping and the optimiser.

In bfloat16 the two steps round differently and neither is exact: an uncompiled sum over all
positions of a step may be off by 10 %. So both are compared with an uncompiled float32 step, and
the compiled step may be only slightly less accurate than the uncompiled one. Gradients are compared
as a whole and row by row, since miscompiled code may corrupt only a few rows.

Large weights of a trained model may amplify rounding to any error. Miscompiled code is wrong
whatever the weights are, so a difference must also be there with small ones.
"""

import math
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bertwright.core.config import Precision
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.training.clock import Progress
from bertwright.training.compilation.agreement_cache import StepAgreement
from bertwright.training.loop import TrainingJob, weighted_loss
from bertwright.training.step_batch import MicroBatch

GRADIENT_TOLERANCES: Mapping[Precision, float] = {"float32": 1e-3, "bf16": 0.05}
"""Maximum error of a parameter's gradient, relative to its norm."""

ROW_TOLERANCE = 5.0
"""Factor of the tolerance for a single row of a gradient."""

LOSS_TOLERANCES: Mapping[Precision, float] = {"float32": 1e-4, "bf16": 1e-2}

ROUNDING_FACTOR = 3.0
"""Additional tolerance, as a multiple of the error of the uncompiled value."""

MIN_RELATIVE_SIZE = 1e-2
"""Minimum size of a gradient, relative to the mean over the model.

Gradients of key biases are zero except for rounding, since the softmax does not depend on them.
"""

SMALL_WEIGHT = 0.02
"""Root mean square of the weights of BERT before training."""

OPTIMISER_TOLERANCES: Mapping[Precision, float] = {"float32": 1e-3, "bf16": 0.02}
"""Maximum error of an element written by the optimiser."""


@dataclass(frozen=True)
class _StepGradient:
    """The loss of a step and its gradient, (T,) float32."""

    loss: float
    gradient: Tensor


def compare_compiled_step(job: TrainingJob[MicroBatch], progress: Progress) -> StepAgreement:
    """Compare the compiled and uncompiled first micro-batch of a step; restore the job.

    A batch with a non-finite uncompiled loss or gradient is not compared: the training loop stops
    there.
    """
    # All processes of a sharded model compute a step together, or none.
    difference = job.process_group.broadcast(_find_difference(job, progress))
    if difference is not None:
        with _small_matrices(job.parameters):
            difference = _find_difference(job, progress)
    return StepAgreement(difference is None, difference or "")


@contextmanager
def _small_matrices(parameters: MasterParameters) -> Generator[None]:
    """Scale matrices and tables to a root mean square of at most SMALL_WEIGHT in the block."""
    master = parameters.master.clone()
    for weight in parameters.views(parameters.master).values():
        if weight.ndim > 1:
            size = float(weight.square().mean().sqrt())
            weight.mul_(SMALL_WEIGHT / max(size, SMALL_WEIGHT))
    parameters.refresh_compute()
    try:
        yield
    finally:
        parameters.master.copy_(master)
        parameters.refresh_compute()


def _find_difference(job: TrainingJob[MicroBatch], progress: Progress) -> str | None:
    states = [(callback, callback.state()) for callback in job.callbacks]

    def compute() -> _StepGradient:
        try:
            return _loss_and_gradient(job, progress)
        finally:
            for callback, state in states:
                callback.load(state)

    with torch.compiler.set_stance("force_eager"):
        exact = eager = compute()
        if job.parameters.precision == "bf16":
            with job.parameters.computing_in_float32():
                exact = compute()
    if not math.isfinite(exact.loss) or not exact.gradient.isfinite().all():
        return None
    difference = _find_gradient_difference(job, exact, eager, compute())
    return difference or _find_optimiser_difference(job, exact.gradient)


def train_step(job: TrainingJob[MicroBatch], progress: Progress) -> None:
    """Train one step on the first micro-batch."""
    gradient = _loss_and_gradient(job, progress).gradient.to(job.parameters.gradient.dtype)
    _, scale = job.gradient_clipping(gradient)
    job.optimiser.step(gradient, job.learning_rate_factor(progress.midpoint), scale)


def _loss_and_gradient(job: TrainingJob[MicroBatch], progress: Progress) -> _StepGradient:
    batch, weights = job.get_batch(progress), job.loss_weights(progress)
    job.parameters.zero_gradient()
    losses = job.compute_losses(batch.micro_batches[0], progress)
    loss = weighted_loss(losses, weights, batch.loss_counts, job.parameters.master.device)
    loss.backward()
    gradient = job.parameters.step_gradient().float().clone()
    job.parameters.zero_gradient()
    return _StepGradient(float(loss.detach()), gradient)


def _find_gradient_difference(
    job: TrainingJob[Any], exact: _StepGradient, eager: _StepGradient, compiled: _StepGradient
) -> str | None:
    precision = job.parameters.precision
    error, size = abs(compiled.loss - exact.loss), max(abs(exact.loss), 1e-3)
    allowed = ROUNDING_FACTOR * abs(eager.loss - exact.loss) + LOSS_TOLERANCES[precision] * size
    if not error <= allowed:
        return _describe_error("the loss", error / size)
    typical = float(exact.gradient.norm()) / math.sqrt(len(exact.gradient))
    views = [job.parameters.views(step.gradient) for step in (exact, eager, compiled)]
    tolerance, min_size = GRADIENT_TOLERANCES[precision], MIN_RELATIVE_SIZE * typical
    for name in views[0]:
        expected, plain, checked = (view[name] for view in views)
        error = _excess_error(expected, plain, checked, tolerance, min_size)
        if error is not None:
            return _describe_error(f"the gradient of {name}", error)
    return None


def _excess_error(
    expected: Tensor, eager: Tensor, compiled: Tensor, tolerance: float, min_size: float
) -> float | None:
    """Return the relative error of a compiled tensor if it exceeds the tolerance, else None.

    Errors are relative to the norm, taken as at least ``min_size`` per element.
    """
    width = expected.shape[-1] if expected.ndim else 1
    for columns, allowance in ((expected.numel(), tolerance), (width, ROW_TOLERANCE * tolerance)):
        exact, eager_rows, compiled_rows = (
            x.reshape(-1, columns) for x in (expected, eager, compiled)
        )
        norms = exact.norm(dim=1)
        mean = norms.square().mean().sqrt()
        sizes = norms.maximum(mean).clamp(min=min_size * math.sqrt(exact.shape[1]))
        errors, rounding = ((rows - exact).norm(dim=1) for rows in (compiled_rows, eager_rows))
        # The rounding of a row by chance may be much smaller than that of the others.
        rounding = rounding.maximum(rounding.square().mean().sqrt())
        wrong = ~(errors <= ROUNDING_FACTOR * rounding + allowance * sizes)
        if wrong.any():
            return float((errors / sizes)[wrong].max())
    return None


def _find_optimiser_difference(job: TrainingJob[Any], gradient: Tensor) -> str | None:
    """Compare compiled and uncompiled clipping and optimiser on a gradient (T,)."""
    parameters, optimiser = job.parameters, job.optimiser
    master = parameters.master.clone()
    state = {name: tensor.clone() for name, tensor in optimiser.state_dict().items()}
    gradient = gradient.to(parameters.gradient.dtype)
    functions = [*job.gradient_clipping.compilables(), *optimiser.compilable_functions()]
    with ExitStack() as comparisons:
        errors = [comparisons.enter_context(f.compare_with_eager()) for f in functions]
        _, scale = job.gradient_clipping(gradient)
        optimiser.step(gradient, 1.0, scale)
    parameters.master.copy_(master)
    parameters.refresh_compute()
    optimiser.load_state_dict(state)
    for function, function_errors in zip(functions, errors, strict=True):
        error = max(function_errors, default=0.0)
        if not error <= OPTIMISER_TOLERANCES[parameters.precision]:
            return _describe_error(f"{function.name} of the optimiser", error)
    return None


def _describe_error(name: str, error: float) -> str:
    return f"{name} is off by {error:.1%}" if math.isfinite(error) else f"{name} is not finite"
