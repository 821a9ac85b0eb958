"""The smallest weights of a pre-trained encoder go, and a task is learned with what is left."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from bertwright.analysis.planted.expecting import Expected, equal, same
from bertwright.compression.pruning.kinds import ShareKept
from bertwright.compression.pruning.masks import highest
from bertwright.compression.storage import Form, load_matrices, save_matrices
from bertwright.encoder.kernels.noise import Noise
from bertwright.randomness import key
from bertwright.studies.compression_checks.first_steps import same_weights
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.adaptation.low_rank import matrices_of
from bertwright.tasks.fine_tuned import FineTuned, load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult

TASK = "sentiment"
GONE, QUICK_GONE = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9), (0.0, 0.4, 0.9)
SUBLAYERS = ("attention", "feed_forward")


class RandomPruning(ShareKept):
    """Which weights go is drawn, once: what any choice must be better than."""

    kind: Literal["random"] = "random"
    draw: int = 0
    learns: ClassVar[bool] = False

    def gates(
        self, scores: Mapping[str, Tensor], level: float, noise: Noise | None
    ) -> dict[str, Tensor]:
        return {name: highest(self._drawn(name, own), level) for name, own in scores.items()}

    def _drawn(self, name: str, like: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(key(self.draw, "random pruning", name) >> 1)
        return torch.rand(like.shape, generator=generator)


def run(ground: Ground) -> Came:
    """From no weight to nine of ten, the smallest or any."""
    yield from _exact(ground)
    shares = QUICK_GONE if ground.quick else GONE
    scores: dict[str, list[list[float]]] = {"magnitude": [], "random": []}
    for kind, found in scores.items():
        for gone in shares:
            runs = (_pruned(ground, seed, kind, 1 - gone) for seed in ground.seeds)
            found.append([run.scores[0] for run in runs])
    for gone, own, others in zip(shares, scores["magnitude"], scores["random"], strict=True):
        yield Measured(f"accuracy, {gone:.0%} gone", own, "random pruning", others)
    means = [
        [sum(by_seed) / len(shares) for by_seed in zip(*scores[k], strict=True)] for k in scores
    ]
    what = "accuracy, in the mean of all shares"
    yield Measured(what, means[0], "random pruning", means[1], wanted="above")


def _pruned(
    ground: Ground, seed: int, kind: str | None, kept: float, out: Path | None = None
) -> FineTuneResult:
    """The task learned by an encoder of which a share is kept from the first step on."""
    gone: dict[str, Any] = {}
    if kind is not None:
        drawn = {"draw": seed} if kind == "random" else {}
        gone["adaptation"] = {"kind": kind, "kept": kept, **drawn}
    return ground.finetuned(ground.pretrained, TASK, seed, out=out, clip=None, **gone)


def _exact(ground: Ground) -> Came:
    """Nothing pruned is plain fine-tuning; as much as is said is 0, and stays so on a disk."""
    plain, whole = (_pruned(ground, 0, kind, 1.0) for kind in (None, "magnitude"))
    yield same("nothing gone is fine-tuning, bit for bit", same_weights(plain, whole), True)
    _pruned(ground, 0, "magnitude", 0.6, ground.folder / "c14")
    model = load_fine_tuned(ground.folder / "c14", "float32")
    matrices = _matrices(model)
    wrong = [
        name for name, m in matrices.items() if m.count_nonzero() != int(0.6 * m.numel() + 1e-6)
    ]
    yield same("matrices that keep another share than 60 %", wrong, [])
    yield from _on_disk(ground, matrices)


def _matrices(model: FineTuned) -> dict[str, Tensor]:
    known = dict(model.net.encoder.named_parameters())
    return {name: known[name].detach() for name in matrices_of(model.net.encoder, SUBLAYERS)}


def _on_disk(ground: Ground, matrices: Mapping[str, Tensor]) -> Iterator[Expected]:
    """What each way of writing takes, against the file."""
    dense = sum(4 * matrix.numel() for matrix in matrices.values())
    wanted = {Form("bitmap"): 1 / (0.6 + 1 / 32), Form("columns"): 1 / 1.2}
    for form, smaller in wanted.items():
        places, file = form.places, ground.folder / f"c14.{form.places}"
        told = sum(form.num_bytes(matrix) for matrix in matrices.values())
        header = save_matrices(file, matrices, form)
        yield equal(f"bytes by {places}", file.stat().st_size - header, told, 0)
        yield equal(f"times smaller by {places}", dense / told, smaller, 0.02)
        read = load_matrices(file, form)
        unequal = [name for name, matrix in matrices.items() if not matrix.equal(read[name])]
        yield same(f"matrices that are others when read again by {places}", unequal, [])


ROW = Row(
    "C14",
    "magnitude",
    "How many of the smallest weights can go, and is it they that can?",
    "Gordon et al. 2020",
    run,
)
