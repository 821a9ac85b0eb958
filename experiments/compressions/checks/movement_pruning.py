"""Movement pruning against magnitude pruning."""

from typing import Any

import torch

from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning import MovementPruning
from bertwright.core.schedules import ConstantSchedule
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import FineTuningResult
from bertwright.training.clock import Progress
from experiments.analyses.expecting import expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.first_steps import same_weights
from experiments.compressions.toy_models import FINE_TUNING, ToyModels, pruning_settings

TASK = "inference"
DENSITIES, QUICK_DENSITIES = (0.7, 0.3, 0.1, 0.03), (0.7, 0.1)


def run(toy: ToyModels) -> CheckResults:
    """Prune by movement and by magnitude, on the same schedule, down to few weights."""
    yield from _exact_checks(toy)
    for density in QUICK_DENSITIES if toy.is_quick else DENSITIES:
        movement, magnitude = (
            [_fine_tune_pruned(toy, seed, kind, density).scores[0] for seed in toy.seeds]
            for kind in ("movement", "magnitude")
        )
        yield MeasuredValue(f"accuracy, {density:.0%} kept", movement, "magnitude", magnitude)
    # Scores learn as fast as in the source, where the learning rate is 3e-5.
    scale = 3e-5 / FINE_TUNING["learning_rate"]
    yield from _penalised_pruning(toy, "movement-soft", score_learning_rate_scale=300 * scale)
    # The source's penalty is for a thousand times as many weights, and would prune all of these.
    yield from _penalised_pruning(toy, "l0", score_learning_rate_scale=3000 * scale, penalty=4.0)


def _penalised_pruning(toy: ToyModels, name: str, **changes: float) -> CheckResults:
    """Measure accuracy and density of a pruning with a penalty."""
    adaptation = {**CompressionMethod.load(name).stages[0].settings["adaptation"], **changes}
    runs = [_fine_tune(toy, seed, {"adaptation": adaptation}) for seed in toy.seeds]
    yield MeasuredValue(f"accuracy, {name}", [run.scores[0] for run in runs])
    yield MeasuredValue(f"density, {name}", [_density(run.model) for run in runs])


def _density(model: FineTunedModel) -> float:
    """Return the density of the weight matrices of blocks."""
    encoder = model.task_model.encoder
    parameters = dict(encoder.named_parameters())
    matrices = [parameters[n] for n in matrix_names(encoder, ("attention", "feed_forward"))]
    num_nonzero = sum(int(matrix.count_nonzero()) for matrix in matrices)
    return num_nonzero / sum(matrix.numel() for matrix in matrices)


def _fine_tune_pruned(
    toy: ToyModels, seed: int, kind: str | None, density: float
) -> FineTuningResult:
    """Fine-tune with a falling density; without a kind or at density 1, densely.

    Movement alone is measured, so its scores start at zero, as in the source.
    """
    settings: dict[str, Any] = {}
    if kind is not None:
        start = {"initial_scores": "zero"} if kind == "movement" else {}
        adaptation = (
            {"kind": kind, "density": 1.0}
            if density == 1.0
            else pruning_settings(kind, density, dense_fraction=1 / 3)
        )
        settings["adaptation"] = {**adaptation, **start}
    return _fine_tune(toy, seed, {"max_grad_norm": None, **settings})


def _fine_tune(toy: ToyModels, seed: int, settings: dict[str, Any]) -> FineTuningResult:
    """Fine-tune six times as long as other checks, or quickly twice: movement takes time."""
    epochs = (2 if toy.is_quick else 6) * toy.size.epochs
    return toy.finetune(toy.pretrained, TASK, seed, epochs=epochs, **settings)


def _exact_checks(toy: ToyModels) -> CheckResults:
    """Check the masks and the gradients of scores, and that density 1 is plain fine-tuning."""
    encoder = toy.pretrained.model.encoder
    pruning = MovementPruning(density=ConstantSchedule(value=0.4)).build_parametrisation(encoder)
    weights = {name: p.detach() for name, p in encoder.named_parameters()}
    pruning.init_parameters(0, weights)
    for callback in pruning.callbacks:
        callback.before_step(Progress(0, 0.0))
    pruned, max_error, wrong = pruning(weights), 0.0, list[str]()
    for (name, values), scores in zip(pruned.items(), pruning.parameters(), strict=True):
        weight, mask = weights[name], values.detach() != 0
        if int(mask.sum()) != int(0.4 * weight.numel()) or (values - weight * mask).any():
            wrong.append(name)
        (gradient,) = torch.autograd.grad(values.pow(3).sum(), scores)
        expected = 3 * values.detach().square() * weight
        max_error = max(max_error, float((gradient - expected).abs().max() / expected.abs().max()))
    yield expect_same("matrices with wrong weights, or another density than 40 %", wrong, [])
    yield expect_equal("gradients of scores", max_error, 0, 1e-5)
    plain, dense = (_fine_tune_pruned(toy, 0, kind, 1.0) for kind in (None, "movement"))
    yield expect_same("density 1 is fine-tuning, bit for bit", same_weights(plain, dense), True)


CHECK = CompressionCheck(
    "C15",
    "movement",
    "Is movement a better criterion for pruning than magnitude, and from which density on?",
    "Sanh et al. 2020",
    run,
)
