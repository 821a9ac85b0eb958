"""Internal distillation of attention: all layers jointly, or from the lowest up."""

from bertwright.compression.distillation.fine_tuning_loss import TeacherTaskDistillation
from bertwright.compression.distillation.losses import AttentionLossConfig, DistillationTermConfig
from bertwright.compression.distillation.losses.layers import LayerMap
from bertwright.compression.pruning.layers import prune_layers, select_layers
from bertwright.core.schedules import ConstantSchedule
from experiments.analyses.expecting import expect_equal
from experiments.compressions.check import (
    CheckResults,
    CompressionCheck,
    MeasuredValue,
    accuracy_claim,
)
from experiments.compressions.first_steps import all_steps, first_step
from experiments.compressions.toy_models import ToyModels

TASK = "majority"
PAIRS = ("1-2", "2-4")
ZERO_WEIGHT = ConstantSchedule(value=0.0)

INTERNAL_LOSSES = (
    {"kind": "attention", "target": "weights"},
    {"kind": "states", "positions": "first", "distance": "cosine"},
)
OUTPUT_STAGE = {
    "objective_weight": 0.5,
    "losses": [{"kind": "outputs", "temperature": 2, "weight": 0.5}],
}


def run(toy: ToyModels) -> CheckResults:
    """Measure what each layer learns in its interval, and the scores of all orders."""
    teacher = toy.fine_tuned(TASK)
    yield from _student_equals_teacher(toy)
    yield from _sequential_layers(toy)
    scores: dict[str, list[float]] = {}
    for order in ("cumulative", "sequential", "joint"):
        losses = [{**term, "order": order} for term in INTERNAL_LOSSES]
        internal = {"objective_weight": 0, "losses": losses}
        method = toy.write_method(f"c3-{order}", {"stages": [internal, OUTPUT_STAGE]})
        # So few examples that students stay below their teacher.
        task_data = toy.task_data(TASK, 2 * toy.size.few_examples)
        scores[order] = toy.compress(teacher, method, task_data=task_data).scores
    for order in ("cumulative", "sequential"):
        yield accuracy_claim(order, scores[order], "joint", scores["joint"])


def _student_equals_teacher(toy: ToyModels) -> CheckResults:
    """Check that a student equal to its teacher has no loss."""
    teacher = toy.fine_tuned(TASK)
    terms = [
        DistillationTermConfig.parse({**term, "order": "cumulative"}) for term in INTERNAL_LOSSES
    ]
    distillation = TeacherTaskDistillation(teacher, terms, ZERO_WEIGHT)
    examples, settings = toy.examples(TASK)[:16], toy.settings()
    report = first_step(teacher, teacher.task, examples, distillation, **settings)
    for name in ("attention", "states"):
        yield expect_equal(
            f"{name} of a student equal to its teacher", report.losses[name], 0, 1e-6
        )
    yield expect_equal("the gradient of both", report.gradient_norm, 0, 1e-4)


def _sequential_layers(toy: ToyModels) -> CheckResults:
    """Check that the lower layer is trained first, then both; the loss of each is recorded."""
    teacher = toy.fine_tuned(TASK)
    single = [
        AttentionLossConfig(target="weights", layers=LayerMap(pairs=p), weight=ZERO_WEIGHT)
        for p in PAIRS
    ]
    cumulative = AttentionLossConfig(target="weights", order="cumulative")
    distillation = TeacherTaskDistillation(teacher, [cumulative, *single], ZERO_WEIGHT)
    student = prune_layers(toy.pretrained, select_layers(2, 4))
    fractions: list[float] = []
    difference = 0.0
    for seed in toy.seeds:
        examples = toy.examples(TASK)[: toy.size.examples]
        reports = all_steps(student, teacher.task, examples, distillation, **toy.settings(seed))
        lower = [report.losses["attention 2"] for report in reports]
        for report in reports:
            losses = report.losses
            both = report.progress.fraction >= 0.5
            expected = losses["attention 2"] + (losses["attention 3"] if both else 0.0)
            difference = max(difference, abs(losses["attention"] - expected))
        half = next(n for n, report in enumerate(reports) if report.progress.fraction >= 0.5)
        fractions.append((lower[0] - lower[half]) / max(lower[0] - min(lower), 1e-9))
    yield expect_equal("the cumulative loss less those of its layers", difference, 0, 1e-5)
    yield MeasuredValue("fraction of the lower layer's progress before the upper starts", fractions)


CHECK = CompressionCheck(
    "C3",
    "internal",
    "Has a layer learned its part before the next one starts, and does the order matter?",
    "Aguilar et al. 2020",
    run,
)
