"""Checks of who sees whom, by changing a text and looking where the states change.

The encoder is the recipe's own with a single block: what one block does not let through, no other
does, and it takes a moment at any size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.encoder.depth import Stack
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.initialisation import initialise
from bertwright.encoder.visibility import Visibility, is_causal
from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Coordinates
from bertwright.model.model import TensorBatch
from bertwright.objectives.objective import Objective, visibility_of
from bertwright.recipes import Recipe
from bertwright.training.doctor.drawing import Drawn
from bertwright.training.doctor.findings import Finding, Verdict

ROWS = 8
"""Rows that are looked at."""

SMALLEST_CHANGE = 1e-6
"""Of a state in float32: less is nothing."""


def check_isolation(
    drawn: Drawn, recipe: Recipe, objectives: Sequence[Objective], vocabulary_size: int
) -> list[Finding]:
    """Documents of a row, padding, and the future, wherever there are such."""
    rule = recipe.encoder.visibility & visibility_of(objectives)
    document = drawn.batch.coordinates.document
    findings: list[Finding] = []
    if document is not None:
        several = np.flatnonzero(document.max(axis=1) > 0)[:ROWS]
        padded = np.flatnonzero((document < 0).any(axis=1))[:ROWS]
        if len(several):
            moved = influence(
                recipe, rule, drawn.batch, several, document[several] == 0, vocabulary_size
            )
            seen, advice = "another document of their row", "set encoder.visibility.kind=document"
            own = moved[document[several] > 0]
            findings.append(_finding("documents", own, "warning", f"places see {seen}", advice))
        if len(padded):
            moved = influence(
                recipe, rule, drawn.batch, padded, document[padded] < 0, vocabulary_size
            )
            own, advice = moved[document[padded] >= 0], "mend the mixer's masks"
            findings.append(_finding("padding", own, "error", "places see padding", advice))
    if is_causal(rule):
        rows = np.arange(min(ROWS, len(drawn.batch.pieces)))
        length = drawn.batch.pieces.shape[1]
        late = np.broadcast_to(np.arange(length) >= length // 2, (len(rows), length))
        moved = influence(recipe, rule, drawn.batch, rows, late, vocabulary_size)
        seen, advice = "places see what follows them", "mend the causal rule or the mixer"
        findings.append(_finding("future", moved[~late], "error", seen, advice))
    return findings


@torch.no_grad()
def influence(
    recipe: Recipe,
    rule: Visibility,
    batch: Batch,
    rows: NDArray[np.int64],
    changed: NDArray[np.bool_],
    vocabulary_size: int,
) -> NDArray[np.float32]:
    """(R, L): how far the states of some rows move when the pieces at ``changed`` (R, L) do."""
    encoder = _one_block(recipe, vocabulary_size)
    whole = TensorBatch(_some(batch, rows))
    others = (whole.pieces + 1) % vocabulary_size
    others = torch.where(torch.from_numpy(changed.copy()), others, whole.pieces)
    before, after = (encoder(p, whole.coordinates, rule) for p in (whole.pieces, others))
    return (after - before).abs().amax(dim=-1).float().numpy()


def _some(batch: Batch, rows: NDArray[np.int64]) -> Batch:
    """Some rows of a batch, without questions."""
    present = batch.coordinates.present()
    kept = Coordinates(**{name: values[rows] for name, values in present.items()})
    return Batch(batch.pieces[rows], kept, {}, 0)


def _one_block(recipe: Recipe, vocabulary_size: int) -> Encoder:
    choice = recipe.encoder.model_copy(update={"depth": Stack(layers=1)})
    encoder = Encoder(choice, vocabulary_size)
    initialise(encoder, choice.initialisation, recipe.seed)
    return encoder


def _finding(
    check: str, moved: NDArray[np.float32], bad: Verdict, what: str, advice: str
) -> Finding:
    leaking = int((moved > SMALLEST_CHANGE).sum())
    return Finding(
        f"masks.{check}",
        bad if leaking else "ok",
        f"{leaking:,} of {moved.size:,} {what}",
        advice if leaking else "",
        {"leaking": leaking, "largest_change": float(moved.max(initial=0.0))},
    )
