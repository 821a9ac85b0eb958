"""Weights that move towards 0, and weights that are near 0: who should go?"""

from typing import Any

import torch

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.method import Method
from bertwright.compression.pruning import MovementPruning
from bertwright.schedules import Constant
from bertwright.studies.compression_checks.first_steps import same_weights
from bertwright.studies.compression_checks.ground import FINE_TUNING, Ground, pruned
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import FineTuneResult
from bertwright.training.clock import Place

TASK = "inference"
KEPT, QUICK_KEPT = (0.7, 0.3, 0.1, 0.03), (0.7, 0.1)


def run(ground: Ground) -> Came:
    """The same schedule for both, down to few weights."""
    yield from _exact(ground)
    for kept in QUICK_KEPT if ground.quick else KEPT:
        by_kind = [
            [_pruned(ground, seed, kind, kept).scores[0] for seed in ground.seeds]
            for kind in ("movement", "magnitude")
        ]
        yield Measured(f"accuracy, {kept:.0%} kept", by_kind[0], "magnitude", by_kind[1])
    # Scores learn as fast as in the source, where weights learn by 3e-5.
    rate = FINE_TUNING["rate"]
    yield from _by_penalty(ground, "movement-soft", score_pace=300 * 3e-5 / rate)
    # The source's penalty is for a thousand times as many weights, and leaves none of these.
    yield from _by_penalty(ground, "l0", score_pace=3000 * 3e-5 / rate, penalty=4.0)


def _by_penalty(ground: Ground, name: str, **changes: float) -> Came:
    """As many weights as each matrix needs, where those that stay cost something."""
    adaptation = {**Method.load(name).stages[0].settings["adaptation"], **changes}
    runs = [_learned(ground, seed, {"adaptation": adaptation}) for seed in ground.seeds]
    yield Measured(f"accuracy, {name}", [run.scores[0] for run in runs])
    yield Measured(f"share that is kept, {name}", [_kept(run.model) for run in runs])


def _kept(model: FineTuned) -> float:
    """Of the weights of blocks."""
    known = dict(model.net.encoder.named_parameters())
    matrices = [known[n] for n in matrices_of(model.net.encoder, ("attention", "feed_forward"))]
    left = sum(int(matrix.count_nonzero()) for matrix in matrices)
    return left / sum(matrix.numel() for matrix in matrices)


def _pruned(ground: Ground, seed: int, kind: str | None, kept: float) -> FineTuneResult:
    """All, or ever fewer weights."""
    gone: dict[str, Any] = {}
    if kind is not None:
        whole = {"kind": kind, "kept": 1.0}
        gone["adaptation"] = whole if kept == 1.0 else pruned(kind, kept, held=1 / 3)
    return _learned(ground, seed, {"clip": None, **gone})


def _learned(ground: Ground, seed: int, settings: dict[str, Any]) -> FineTuneResult:
    """Six times as long as others learn: what moves shows late."""
    epochs = 6 * ground.size.epochs
    return ground.finetuned(ground.pretrained, TASK, seed, epochs=epochs, **settings)


def _exact(ground: Ground) -> Came:
    """A weight stays or is 0, and its score learns by the slope of what is left times the weight;
    nothing pruned is plain fine-tuning."""
    encoder = ground.pretrained.model.encoder
    pruning = MovementPruning(kept=Constant(value=0.4)).changes(encoder)
    pruning.begin(0)
    for procedure in pruning.procedures:
        procedure.before_step(Place(0, 0.0))
    known = {name: p.detach() for name, p in encoder.named_parameters()}
    left, apart, wrong = pruning(known), 0.0, list[str]()
    for (name, found), scores in zip(left.items(), pruning.parameters(), strict=True):
        weight, mask = known[name], found.detach() != 0
        if int(mask.sum()) != int(0.4 * weight.numel()) or (found - weight * mask).any():
            wrong.append(name)
        (slope,) = torch.autograd.grad(found.pow(3).sum(), scores)
        wanted = 3 * found.detach().square() * weight
        apart = max(apart, float((slope - wanted).abs().max() / wanted.abs().max()))
    yield same("matrices of which other weights stay, or not 40 %", wrong, [])
    yield equal("slopes of scores", apart, 0, 1e-5)
    plain, whole = (_pruned(ground, 0, kind, 1.0) for kind in (None, "movement"))
    yield same("nothing gone is fine-tuning, bit for bit", same_weights(plain, whole), True)


ROW = Row(
    "C15",
    "movement",
    "Do weights that move towards 0 tell better what can go than small ones, and from where on?",
    "Sanh et al. 2020",
    run,
)
