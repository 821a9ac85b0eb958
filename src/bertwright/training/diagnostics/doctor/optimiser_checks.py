"""Checks of optimiser settings: learning rate, warmup, moments, weight decay.

The bounds come from publications and from our own small studies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bertwright.optimisers.adam import AdamConfig, AdamFamilyConfig
from bertwright.optimisers.muon import AdaMuonConfig, MuonConfig, MuonFamilyConfig
from bertwright.optimisers.optimiser import OptimiserConfig
from bertwright.optimisers.trust_ratio import LambConfig
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity, grade

USUAL_LEARNING_RATE, USUAL_WIDTH = 1.5e-3, 768
"""Highest usual Adam learning rate at this width (published: 1e-4 to 1.5e-3).

The best learning rate falls as the width grows (Yang et al. 2022).
"""

USUAL_TABLE_LEARNING_RATE = 1e-2
"""Highest usual Adam learning rate under Muon, for embeddings, biases and norms.

It need not fall as the width grows (our own studies, 3e-3 to 6e-3).
"""

MIN_LEARNING_RATE = 3e-5
"""Lower learning rates are too slow for training from scratch."""

POST_NORM_LEARNING_RATE, POST_NORM_LAYERS = 7e-4, 12
"""The highest published post-norm learning rates are RoBERTa's: 6e-4 (12 layers), 4e-4 (24)."""

MATRIX_LEARNING_RATES: dict[type[OptimiserConfig], tuple[float, float]] = {
    # 0.02 to 0.05; lower with strong weight decay (Jordan et al. 2024).
    MuonConfig: (0.002, 0.06),
    # Those of AdamW for the same model (Si et al. 2025).
    AdaMuonConfig: (2e-4, 2e-2),
    # 1.76e-3 (Lan et al. 2020) to 1.41e-2 (Charpentier and Samuel 2024).
    LambConfig: (2e-4, 2e-2),
}
"""Published learning rates of matrices."""


@dataclass(frozen=True)
class WarmupShape:
    """The start of the learning rate schedule.

    Attributes:
        highest: largest multiplier of the learning rate.
        first: multiplier of the first step.
        num_steps: steps until 95 % of the highest multiplier is reached.
    """

    highest: float
    first: float
    num_steps: int

    @property
    def is_absent(self) -> bool:
        """Return whether the first step uses at least half the highest learning rate."""
        return self.first >= 0.5 * self.highest


def warmup_shape(recipe: Recipe) -> WarmupShape:
    """Return the warmup of a recipe's schedule."""
    steps = np.unique(np.geomspace(1, recipe.steps, 2000).astype(int)) - 1
    factors = [recipe.schedule.at((step + 0.5) / recipe.steps) for step in steps.tolist()]
    highest = max(factors)
    end = int(np.argmax(np.array(factors) >= 0.95 * highest))
    return WarmupShape(highest, factors[0], int(steps[end]))


def check_warmup(recipe: Recipe) -> Diagnostic | None:
    """Check the warmup; post-norm has large gradients near its output (Xiong 2020)."""
    warmup, is_post_norm = warmup_shape(recipe), recipe.encoder.norm.placement == "post"
    is_short = warmup.num_steps < min(100, 0.01 * recipe.steps)
    severity: Severity = "note" if warmup.is_absent or is_short else "ok"
    if warmup.is_absent and is_post_norm:
        severity = "warning"
    return Diagnostic(
        "recipe.warmup",
        severity,
        f"the learning rate rises for {warmup.num_steps:,} of {recipe.steps:,} steps "
        f"({'post-norm' if is_post_norm else 'pre-norm'})",
        "set schedule={kind: warmup, warmup: 0.05, decay: linear}",
        {"steps": warmup.num_steps},
    )


def check_learning_rate(recipe: Recipe) -> Diagnostic | None:
    """Compare the peak learning rate with usual ones for the optimiser, width and depth."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamilyConfig) or isinstance(optimiser, LambConfig):
        return None
    highest = optimiser.learning_rate * warmup_shape(recipe).highest
    width, layers = recipe.encoder.width, _num_layers(recipe)
    is_muon = isinstance(optimiser, MuonFamilyConfig)
    usual = USUAL_TABLE_LEARNING_RATE if is_muon else USUAL_LEARNING_RATE * USUAL_WIDTH / width
    message = (
        f"the learning rate reaches {highest:.2g}; at width {width} at most {usual:.2g} is usual"
    )
    severity: Severity = grade(highest / usual, note=1.0 + 1e-6, warning=4.0)
    if recipe.encoder.norm.placement == "post" and not is_muon:
        bound = POST_NORM_LEARNING_RATE * (POST_NORM_LAYERS / layers) ** 0.5
        if highest > bound:
            usual, severity = bound, grade(highest / bound, note=1.0, warning=1.5)
            message = (
                f"the learning rate reaches {highest:.2g}; post-norm of {layers} layers tolerates "
                f"{bound:.2g}"
            )
    advice = f"set optimiser.learning_rate={usual:.2g} or lower"
    if highest < MIN_LEARNING_RATE:
        severity, message = "warning", f"the learning rate reaches only {highest:.2g}"
        advice = "set optimiser.learning_rate=1e-3"
    metrics = {"learning_rate": highest, "usual": usual}
    return Diagnostic("recipe.learning-rate", severity, message, advice, metrics)


def check_matrix_learning_rate(recipe: Recipe) -> Diagnostic | None:
    """Check the learning rate of Muon, AdaMuon or LAMB, relative to the size of the matrix."""
    optimiser = recipe.optimiser
    ranges = (r for kind, r in MATRIX_LEARNING_RATES.items() if isinstance(optimiser, kind))
    if (usual := next(ranges, None)) is None:
        return None
    key = "matrix_learning_rate" if isinstance(optimiser, MuonFamilyConfig) else "learning_rate"
    learning_rate: float = getattr(optimiser, key)
    highest = learning_rate * warmup_shape(recipe).highest
    lowest_usual, highest_usual = usual
    middle = (lowest_usual * highest_usual) ** 0.5
    distance = max(highest / highest_usual, lowest_usual / highest)
    return Diagnostic(
        "recipe.matrix-learning-rate",
        grade(distance, note=1.01, warning=4.0),
        f"{type(optimiser).__name__.removesuffix('Config')}: {key} reaches {highest:.2g}; "
        f"{lowest_usual:g} to {highest_usual:g} is usual",
        f"set optimiser.{key}={middle:.2g}",
        {key: highest},
    )


def check_beta_2(recipe: Recipe) -> Diagnostic | None:
    """Check that beta_2 does not average over too many early steps (0.999: a thousand)."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamilyConfig) or optimiser.beta_2 < 0.985:
        return None
    window = 1 / (1 - optimiser.beta_2)
    return Diagnostic(
        "recipe.beta-2",
        grade(-recipe.steps, note=-10 * window + 1e-6, warning=-3 * window + 1e-6),
        f"beta_2 {optimiser.beta_2:g} averages over {window:,.0f} of {recipe.steps:,} steps",
        "set optimiser.beta_2=0.98",
        {"beta_2": optimiser.beta_2, "steps_averaged": window},
    )


def check_bias_correction(recipe: Recipe) -> Diagnostic | None:
    """Check bias correction; without it the first steps of Adam are several times too large."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamilyConfig) or optimiser.bias_correction:
        return None
    factor = (1 - optimiser.beta_1) / (1 - optimiser.beta_2) ** 0.5
    has_warmup = not warmup_shape(recipe).is_absent
    return Diagnostic(
        "recipe.bias-correction",
        "ok" if has_warmup else "warning",
        f"Adam without bias correction: the first step is {factor:.2g} times the learning rate"
        + ("; the warmup compensates" if has_warmup else ", and there is no warmup"),
        "set optimiser.bias_correction=true, or a warmup",
        {"first_step_factor": factor},
    )


def check_weight_decay(recipe: Recipe) -> Diagnostic | None:
    """Check how far weights without a gradient shrink in the whole run."""
    optimiser = recipe.optimiser
    if not isinstance(optimiser, AdamFamilyConfig):
        return None
    if isinstance(optimiser, AdamConfig) and optimiser.weight_decay > 0:
        return Diagnostic(
            "recipe.weight-decay",
            "note",
            f"Adam with L2 {optimiser.weight_decay:g}: the decay is divided by the gradient's "
            f"size, so weights with large gradients hardly shrink",
            "set optimiser.kind=adamw for decoupled weight decay",
            {"weight_decay": optimiser.weight_decay},
        )
    fractions = np.linspace(0, 1, 201).tolist()
    mean_factor = float(np.mean([recipe.schedule.at(fraction) for fraction in fractions]))
    shrinking = optimiser.learning_rate * mean_factor * optimiser.weight_decay * recipe.steps
    severity = grade(shrinking, note=5.0, warning=20.0)
    advice = "" if severity == "ok" else f"{optimiser.weight_decay / shrinking:.1g}"
    return Diagnostic(
        "recipe.weight-decay",
        severity,
        f"weight decay {optimiser.weight_decay:g} shrinks unused weights to "
        f"{np.exp(-shrinking):.2g} of their size in {recipe.steps:,} steps",
        f"set optimiser.weight_decay={advice}",
        {"weight_decay": optimiser.weight_decay, "shrinking": shrinking},
    )


OPTIMISER_CHECKS: tuple[Callable[[Recipe], Diagnostic | None], ...] = (
    check_warmup,
    check_learning_rate,
    check_matrix_learning_rate,
    check_beta_2,
    check_bias_correction,
    check_weight_decay,
)


def _num_layers(recipe: Recipe) -> int:
    return max(1, "".join(recipe.encoder.depth.sublayer_orders()).count("s"))
