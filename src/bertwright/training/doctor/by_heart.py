"""Whether one batch can be learned by heart: a model that cannot do that learns nothing else.

The body is the recipe's own, without dropout; the optimiser is one that is known to work.
"""

from dataclasses import dataclass

from bertwright.optimisers.adam import AdamW
from bertwright.schedules import Warmup
from bertwright.training.clock import Clock, Place
from bertwright.training.doctor.findings import Finding, Verdict
from bertwright.training.doctor.trial import Enough, Trial
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.reporting import StepReport

MOST_TOKENS = 1024
STEPS = 200

LEARNED, BEGUN = 0.5, 0.9
"""Shares of the unigram entropy: below the first a batch is known by heart, above the second
nothing of it is."""


@dataclass(frozen=True)
class ByHeart:
    """The lowest loss on the batch, the steps taken, whether all of them were taken and all was
    finite, and the speed."""

    loss: float
    steps: int
    complete: bool
    finite: bool
    tokens_per_second: float


def learn_by_heart(
    trial: Trial, entropy: float, seconds: float = float("inf"), steps: int = STEPS
) -> ByHeart:
    """Train on the first batch alone until it is known, for at most so many steps and seconds."""
    trial = trial.with_batches(MOST_TOKENS)
    only = RecipeBatches(trial.recipe, trial.data, trial.mine)(Place(0, 0.0))
    clock = Clock(steps)
    losses: list[float] = []
    ends: list[float] = []

    def watch(report: StepReport) -> None:
        losses.append(report.losses[trial.question])
        ends.append(clock.elapsed())
        if losses[-1] < LEARNED * entropy or ends[-1] > seconds:
            raise Enough

    finite = trial.run(
        clock,
        watch,
        optimiser=AdamW(rate=safe_rate(trial.recipe.encoder.width), beta_2=0.98, decay=0.0),
        rate=Warmup(warmup=min(1.0, 20 / steps), decay="constant").at,
        batch=lambda place: only,
        with_dropout=False,
    )
    # The first step is slow, so it counts only where it is the only one.
    began = ends.pop(0) if len(ends) > 1 else 0.0
    speed = only.num_tokens * len(ends) / max(clock.elapsed() - began, 1e-9)
    lowest, taken = min(losses, default=float("nan")), len(losses)
    return ByHeart(lowest, taken, taken == steps, finite, speed)


def safe_rate(width: int) -> float:
    """A rate at which bodies of this width, pre-norm or post-norm, are known to learn."""
    return min(2e-3, 0.25 / width)


def judged(found: ByHeart, entropy: float) -> Finding:
    """The finding: known by heart, on the way there, or not a trace of it."""
    if not found.finite:
        return Finding(
            "trials.by-heart",
            "error",
            f"the loss is not finite after {found.steps} steps on one batch at a safe rate",
            "the body is numerically unsound: look at encoder.norm and encoder.initialisation",
            {"steps": found.steps},
        )
    verdict: Verdict = "ok"
    advice = ""
    if found.loss > BEGUN * entropy and found.complete:
        verdict = "error"
        advice = (
            "the body cannot learn: look at encoder.norm, encoder.initialisation and "
            "encoder.visibility"
        )
    elif found.loss > LEARNED * entropy:
        verdict, advice = "note", "give the trials more --minutes to be sure"
    return Finding(
        "trials.by-heart",
        verdict,
        f"one batch learned to {found.loss:.3f} nats in {found.steps} steps at a safe rate; the "
        f"frequencies of pieces alone give {entropy:.3f}",
        advice,
        {"loss": found.loss, "steps": found.steps, "unigram_entropy": entropy},
    )
