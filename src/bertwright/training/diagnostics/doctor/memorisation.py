"""Check that the encoder can memorise one batch; if it cannot, it will not learn anything else.

Uses the recipe's model without dropout, and an optimiser that is known to work.
"""

from dataclasses import dataclass

from bertwright.core.schedules import WarmupSchedule
from bertwright.optimisers.adam import AdamWConfig
from bertwright.training.callbacks.callback import StepReport
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity
from bertwright.training.diagnostics.doctor.trial import DiagnosticTrial, StopTrial
from bertwright.training.pretraining_batches import PretrainingBatches

MAX_BATCH_TOKENS = 1024
MAX_STEPS = 200

MEMORISED_BELOW, STARTED_BELOW = 0.5, 0.9
"""Losses relative to the unigram entropy: memorised below the first, untrained above the second."""


@dataclass(frozen=True)
class MemorisationResult:
    """The result of memorising one batch; ``is_complete`` if all steps were taken."""

    lowest_loss: float
    num_steps: int
    is_complete: bool
    is_finite: bool
    tokens_per_second: float


def memorise_batch(
    trial: DiagnosticTrial,
    unigram_entropy: float,
    max_seconds: float = float("inf"),
    max_steps: int = MAX_STEPS,
) -> MemorisationResult:
    """Train on the first batch alone until it is memorised, or a limit is reached."""
    trial = trial.with_batch_limit(MAX_BATCH_TOKENS)
    batch = PretrainingBatches(trial.recipe, trial.data, trial.process_group)(Progress(0, 0.0))
    clock = TrainingClock(max_steps)
    losses: list[float] = []
    end_times: list[float] = []

    def on_step(report: StepReport) -> None:
        losses.append(report.losses[trial.objective])
        end_times.append(clock.elapsed_seconds())
        if losses[-1] < MEMORISED_BELOW * unigram_entropy or end_times[-1] > max_seconds:
            raise StopTrial

    is_finite = trial.run(
        clock,
        on_step,
        optimiser=AdamWConfig(
            learning_rate=safe_learning_rate(trial.recipe.encoder.width),
            beta_2=0.98,
            weight_decay=0.0,
        ),
        learning_rate_factor=WarmupSchedule(warmup=min(1.0, 20 / max_steps), decay="constant").at,
        get_batch=lambda progress: batch,
        use_dropout=False,
    )
    # The first step is slow, so it counts only if it is the only one.
    start = end_times.pop(0) if len(end_times) > 1 else 0.0
    speed = batch.num_tokens * len(end_times) / max(clock.elapsed_seconds() - start, 1e-9)
    lowest, num_steps = min(losses, default=float("nan")), len(losses)
    return MemorisationResult(lowest, num_steps, num_steps == max_steps, is_finite, speed)


def safe_learning_rate(width: int) -> float:
    """Return a learning rate that works for pre-norm and post-norm encoders of this width."""
    return min(2e-3, 0.25 / width)


def diagnose_memorisation(result: MemorisationResult, unigram_entropy: float) -> Diagnostic:
    """Return the diagnostic: memorised, on the way, or nothing learned."""
    if not result.is_finite:
        return Diagnostic(
            "trials.memorisation",
            "error",
            f"the loss is not finite after {result.num_steps} steps on one batch with a safe "
            f"learning rate",
            "the encoder is numerically unstable: check encoder.norm and encoder.initialisation",
            {"steps": result.num_steps},
        )
    severity: Severity = "ok"
    advice = ""
    if result.lowest_loss > STARTED_BELOW * unigram_entropy and result.is_complete:
        severity = "error"
        advice = (
            "the encoder cannot learn: check encoder.norm, encoder.initialisation and "
            "encoder.visibility"
        )
    elif result.lowest_loss > MEMORISED_BELOW * unigram_entropy:
        severity, advice = "note", "give the trials more --minutes to be sure"
    return Diagnostic(
        "trials.memorisation",
        severity,
        f"one batch learned to {result.lowest_loss:.3f} nats in {result.num_steps} steps with a "
        f"safe learning rate; token frequencies alone give {unigram_entropy:.3f}",
        advice,
        {"loss": result.lowest_loss, "steps": result.num_steps, "unigram_entropy": unigram_entropy},
    )
