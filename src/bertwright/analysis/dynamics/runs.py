"""Figures over runs of training, which differ by their seeds."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.findings import Baseline, Finding
from bertwright.significance import of_runs

Floats = NDArray[np.float64]

RUNS = 6
"""As few as can decide: of fewer, chance lays all on one side more than once in twenty."""


def over_runs(
    metric: str, right: Floats, total: Floats, seed: int, baseline: Baseline | None = None
) -> Finding:
    """The share of words (N,) that are right (R, N), whose units are the runs, or by how much it is
    ahead where ``right`` is how many more; with what the runs differ by."""
    found = Finding.over_texts(metric, of_runs(right, total, seed=seed), baseline=baseline)
    if len(right) < 2:
        return found
    own = right.sum(1) / total.sum()
    note = f"sd {own.std(ddof=1):.4f} over {len(own)} runs, {own.min():.4f} to {own.max():.4f}"
    return replace(found, note=note)
