"""Checks of how a recipe's optimiser is set: rate, warmup, moments, decay.

Bounds come from published training and from our own small studies, and say so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bertwright.optimisers.adam import Adam, AdamFamily
from bertwright.optimisers.muon import Muon
from bertwright.optimisers.tensorwise import Lamb
from bertwright.recipes import Recipe
from bertwright.training.doctor.findings import Finding, Verdict, graded

USUAL_RATE, USUAL_WIDTH = 1.5e-3, 768
"""Encoders of this width are trained with at most this Adam rate (published: 1e-4 to 1.5e-3); the
rate that works falls as the width grows (Yang et al. 2022)."""

USUAL_TABLE_RATE = 1e-2
"""Under Muon the rate is that of tables, biases and norms alone, and need not fall with the width
(our own studies, 3e-3 to 6e-3)."""

LOWEST_RATE = 3e-5
"""Below it a model that starts from nothing does not come far."""

POST_NORM_RATE, POST_NORM_LAYERS = 7e-4, 12
"""RoBERTa's 6e-4 at 12 layers and 4e-4 at 24 are the highest published post-norm rates."""

MATRIX_RATES = (0.002, 0.06)
"""Published for Muon: 0.02 to 0.05; less where its decay is strong (Jordan et al. 2024)."""

NORM_RATES = (2e-4, 2e-2)
"""Published for LAMB: 1.76e-3 (Lan et al. 2020) to 1.41e-2 (Charpentier and Samuel 2024)."""


@dataclass(frozen=True)
class Rise:
    """How the learning rate begins, in the order of the run.

    Attributes:
        highest: the largest multiplier of the rate.
        first: the multiplier of the first step.
        steps: until 95 % of the highest is reached.
    """

    highest: float
    first: float
    steps: int

    @property
    def absent(self) -> bool:
        """Whether the first step is taken at half the highest rate or more."""
        return self.first >= 0.5 * self.highest


def rise(recipe: Recipe) -> Rise:
    """How the rate of a recipe rises."""
    steps = np.unique(np.geomspace(1, recipe.steps, 2000).astype(int)) - 1
    rates = [recipe.schedule.at((step + 0.5) / recipe.steps) for step in steps.tolist()]
    highest = max(rates)
    reached = int(np.argmax(np.array(rates) >= 0.95 * highest))
    return Rise(highest, rates[0], int(steps[reached]))


def warmup(recipe: Recipe) -> Finding | None:
    """Post-norm needs small first steps: the gradients near its output are large (Xiong 2020)."""
    begun, post = rise(recipe), recipe.encoder.norm.placement == "post"
    placed = "post-norm" if post else "pre-norm"
    short = begun.steps < min(100, 0.01 * recipe.steps)
    verdict: Verdict = "ok"
    if begun.absent or short:
        verdict = "note"
    if begun.absent and post:
        verdict = "warning"
    return Finding(
        "recipe.warmup",
        verdict,
        f"the rate rises for {begun.steps:,} of {recipe.steps:,} steps ({placed})",
        "" if verdict == "ok" else "set schedule={kind: warmup, warmup: 0.05, decay: linear}",
        {"steps": begun.steps},
    )


def rate(recipe: Recipe) -> Finding | None:
    """The highest rate against what is usual for the optimiser, the width and the depth."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamily) or isinstance(optimiser, Lamb):
        return None
    highest = optimiser.rate * rise(recipe).highest
    width, layers = recipe.encoder.width, _layers(recipe)
    matrices_apart = isinstance(optimiser, Muon)
    usual = USUAL_TABLE_RATE if matrices_apart else USUAL_RATE * USUAL_WIDTH / width
    figures = {"rate": highest, "usual": usual}
    seen = f"the rate reaches {highest:.2g}; at width {width} at most {usual:.2g} is usual"
    verdict = graded(highest / usual, note=1.0 + 1e-6, warning=4.0)
    if recipe.encoder.norm.placement == "post" and not matrices_apart:
        bound = POST_NORM_RATE * (POST_NORM_LAYERS / layers) ** 0.5
        if highest > bound:
            verdict = graded(highest / bound, note=1.0, warning=1.5)
            seen = f"the rate reaches {highest:.2g}; post-norm of {layers} layers bears {bound:.2g}"
            figures["usual"] = bound
    if highest < LOWEST_RATE:
        seen = f"the rate reaches only {highest:.2g}"
        return Finding("recipe.rate", "warning", seen, "set optimiser.rate=1e-3", figures)
    advice = "" if verdict == "ok" else f"set optimiser.rate={figures['usual']:.2g} or below"
    return Finding("recipe.rate", verdict, seen, advice, figures)


def matrix_rate(recipe: Recipe) -> Finding | None:
    """The rate of Muon or LAMB: the size of a step in units of the matrix itself."""
    optimiser = recipe.optimiser
    if isinstance(optimiser, Muon):
        key, stated, usual = "matrix_rate", optimiser.matrix_rate, MATRIX_RATES
    elif isinstance(optimiser, Lamb):
        key, stated, usual = "rate", optimiser.rate, NORM_RATES
    else:
        return None
    highest = stated * rise(recipe).highest
    lowest_usual, highest_usual = usual
    middle = (lowest_usual * highest_usual) ** 0.5
    distance = max(highest / highest_usual, lowest_usual / highest)
    verdict = graded(distance, note=1.01, warning=4.0)
    return Finding(
        "recipe.matrix-rate",
        verdict,
        f"{type(optimiser).__name__}'s {key} reaches {highest:.2g}; {lowest_usual:g} to "
        f"{highest_usual:g} is usual",
        "" if verdict == "ok" else f"set optimiser.{key}={middle:.2g}",
        {key: highest},
    )


def second_moment(recipe: Recipe) -> Finding | None:
    """beta2 .999 remembers a thousand steps, also those before anything was learned."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamily) or optimiser.beta_2 < 0.985:
        return None
    memory = 1 / (1 - optimiser.beta_2)
    verdict = graded(-recipe.steps, note=-10 * memory + 1e-6, warning=-3 * memory + 1e-6)
    return Finding(
        "recipe.beta-2",
        verdict,
        f"beta_2 {optimiser.beta_2:g} averages over {memory:,.0f} of {recipe.steps:,} steps",
        "" if verdict == "ok" else "set optimiser.beta_2=0.98",
        {"beta_2": optimiser.beta_2, "steps_averaged": memory},
    )


def bias_correction(recipe: Recipe) -> Finding | None:
    """Without it the first steps of Adam are several times too large."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamily) or optimiser.bias_correction:
        return None
    factor = (1 - optimiser.beta_1) / (1 - optimiser.beta_2) ** 0.5
    bad = rise(recipe).absent
    return Finding(
        "recipe.bias-correction",
        "warning" if bad else "ok",
        f"Adam without bias correction: the first step is {factor:.2g} times the rate"
        + (", and nothing warms up" if bad else "; the warmup covers it"),
        "set optimiser.bias_correction=true, or a warmup" if bad else "",
        {"first_step": factor},
    )


def decay(recipe: Recipe) -> Finding | None:
    """How far weights that get no gradient shrink in the whole run."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamily):
        return None
    if isinstance(optimiser, Adam) and optimiser.decay > 0:
        return Finding(
            "recipe.decay",
            "note",
            f"Adam with L2 {optimiser.decay:g}: the decay is divided by the gradient's size, so "
            f"large weights hardly shrink",
            "set optimiser.kind=adamw for decay that shrinks all alike",
            {"decay": optimiser.decay},
        )
    places = np.linspace(0, 1, 201).tolist()
    mean_rate = optimiser.rate * float(np.mean([recipe.schedule.at(p) for p in places]))
    shrinking = mean_rate * optimiser.decay * recipe.steps
    verdict = graded(shrinking, note=5.0, warning=20.0)
    return Finding(
        "recipe.decay",
        verdict,
        f"decay {optimiser.decay:g} shrinks unused weights to {np.exp(-shrinking):.2g} of their "
        f"size in {recipe.steps:,} steps",
        "" if verdict == "ok" else f"set optimiser.decay={optimiser.decay / shrinking:.1g}",
        {"decay": optimiser.decay, "shrinking": shrinking},
    )


OPTIMISER_CHECKS: tuple[Callable[[Recipe], Finding | None], ...] = (
    warmup,
    rate,
    matrix_rate,
    second_moment,
    bias_correction,
    decay,
)


def _layers(recipe: Recipe) -> int:
    return max(1, "".join(recipe.encoder.depth.orders()).count("s"))
