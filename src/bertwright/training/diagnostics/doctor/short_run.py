"""Check that a short run with the whole schedule gets below the unigram entropy."""

import tempfile
from pathlib import Path

from bertwright.data.shards.dataset import Dataset
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import metric_name
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity
from bertwright.training.diagnostics.doctor.trial import limit_batch_tokens
from bertwright.training.evaluation.evaluator import PLATEAU_NATS
from bertwright.training.evaluation.held_out import masked_objective_name
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run import PretrainingResult
from bertwright.training.step_monitor import NonFiniteError

MIN_STEPS, MIN_TOKENS = 200, 500_000
"""Steps and tokens after which a sound recipe has left the plateau."""


def run_and_diagnose(
    recipe: Recipe, data: Dataset, seconds: float, max_batch_tokens: float
) -> Diagnostic:
    """Pre-train for ``seconds`` in a temporary folder.

    Batches have at most ``max_batch_tokens``: a step of a published batch may take an hour.
    """
    with tempfile.TemporaryDirectory() as folder:
        output, limited = Path(folder) / "run", limit_batch_tokens(recipe, max_batch_tokens)
        try:
            result = pretrain(limited, data, output, budget=seconds)
        except NonFiniteError as error:
            return Diagnostic(
                "trials.short-run",
                "error",
                f"the loss or gradient becomes non-finite in step {error.step:,}",
                "lower optimiser.learning_rate, or raise schedule.warmup",
            )
    return diagnose_short_run(result, recipe)


def diagnose_short_run(result: PretrainingResult, recipe: Recipe) -> Diagnostic:
    """Compare the held-out loss with the unigram entropy."""
    name = masked_objective_name(recipe.objectives_of(len(recipe.phases) - 1))
    entropy = result.metrics.get("unigram_entropy")
    cost = f"{result.num_steps:,} steps ({result.num_tokens:,} tokens) in {result.seconds:.0f} s"
    metrics = {
        "steps": float(result.num_steps),
        "tokens": float(result.num_tokens),
        "seconds": result.seconds,
    }
    if name is None or entropy is None:
        message = f"{cost}; no masked loss to compare"
        return Diagnostic("trials.short-run", "ok", message, "", metrics)
    gain = entropy - result.metrics[f"{metric_name(name)}_loss"]
    is_long = result.num_steps >= MIN_STEPS and result.num_tokens >= MIN_TOKENS
    severity: Severity = "ok" if gain > PLATEAU_NATS else "warning" if is_long else "note"
    advice = "the run is too short for a conclusion: give it more --minutes"
    if severity == "warning":
        advice = (
            "training is on the plateau: check the warnings above, optimiser.learning_rate, "
            "optimiser.beta_2, encoder.initialisation and the batch"
        )
    return Diagnostic(
        "trials.short-run",
        severity,
        f"{cost}: held-out masked loss {entropy - gain:.3f}, {abs(gain):.3f} nats "
        f"{'below' if gain > 0 else 'above'} the unigram entropy of {entropy:.3f}",
        advice,
        {**metrics, "below_unigram_entropy": gain},
    )
