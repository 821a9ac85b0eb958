"""A short run of the recipe as it is, its whole schedule in the time given: does it leave the
unigram entropy?"""

import tempfile
from pathlib import Path

from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.doctor.findings import Finding, Verdict
from bertwright.training.doctor.trial import with_batches
from bertwright.training.evaluation import masked_name
from bertwright.training.pretraining import pretrain
from bertwright.training.pretraining_run import Pretrained
from bertwright.training.reporting import figure_name
from bertwright.training.step_watch import NotFinite
from bertwright.training.watching import PLATEAU

ENOUGH_STEPS, ENOUGH_TOKENS = 200, 500_000
"""After which a sound recipe has left the plateau, at least a little."""


def found(recipe: Recipe, data: Data, seconds: float, most_tokens: float) -> Finding:
    """Pre-train for so many seconds, in a folder that does not stay, with batches of at most
    ``most_tokens``: a step of a published batch may take an hour."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            run = pretrain(with_batches(recipe, most_tokens), data, out, budget=seconds)
        except NotFinite as error:
            return Finding(
                "trials.short-run",
                "error",
                f"the loss or the gradient is no finite number any more in step {error.step:,}",
                "lower optimiser.rate, or raise schedule.warmup",
            )
    return judged(run, recipe)


def judged(run: Pretrained, recipe: Recipe) -> Finding:
    """The finding: how far below the unigram entropy the held-out loss is."""
    name = masked_name(recipe.objectives_of(len(recipe.phases) - 1))
    entropy = run.figures.get("unigram_entropy")
    effort = f"{run.steps:,} steps ({run.tokens:,} tokens) in {run.seconds:.0f} s"
    figures = {"steps": float(run.steps), "tokens": float(run.tokens), "seconds": run.seconds}
    if name is None or entropy is None:
        return Finding(
            "trials.short-run", "ok", f"{effort}; no masked loss to compare", "", figures
        )
    gain = entropy - run.figures[f"{figure_name(name)}_loss"]
    enough = run.steps >= ENOUGH_STEPS and run.tokens >= ENOUGH_TOKENS
    verdict: Verdict = "ok" if gain > PLATEAU else "warning" if enough else "note"
    advice = {
        "ok": "",
        "note": "too short a run to tell: give it more --minutes",
        "warning": "the plateau: look at the warnings above, then at optimiser.rate, "
        "optimiser.beta_2, encoder.initialisation and the batch",
    }[verdict]
    return Finding(
        "trials.short-run",
        verdict,
        f"{effort}: held-out masked loss {entropy - gain:.3f}, {abs(gain):.3f} nats "
        f"{'below' if gain > 0 else 'above'} the unigram entropy of {entropy:.3f}",
        advice,
        {**figures, "below_unigram_entropy": gain},
    )
