"""Patient distillation: a student of the first blocks learns outputs and first hidden states."""

from bertwright.compression.distillation.fine_tuning_loss import TeacherTaskDistillation
from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning.layers import prune_layers
from bertwright.core.schedules import ConstantSchedule
from experiments.analyses.expecting import expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.first_steps import first_step, same_weights
from experiments.compressions.toy_models import ToyModels

TASK = "inference"


def run(toy: ToyModels) -> CheckResults:
    """Compare one student trained on labels only, with outputs, and with hidden states, too.

    Twice as many seeds as elsewhere, since the effect is smaller than the differences between
    seeds; and twice as many examples, since with fewer two blocks learn nothing about pairs.
    """
    yield from _student_equals_teacher(toy)
    teacher, student = toy.fine_tuned(TASK), prune_layers(toy.pretrained, [0, 1])
    seeds, data = range(2 * toy.size.seeds), toy.task_data(TASK, 2 * toy.size.examples)
    outputs = toy.compress(teacher, "output-distillation", seeds, task_data=data, student=student)
    patient = toy.compress(
        teacher, "pkd-skip", seeds, task_data=data, student=student, with_baseline=True
    )
    yield MeasuredValue("accuracy, teacher", [patient.teacher_score])
    baseline = "labels only", patient.baseline_scores
    yield MeasuredValue("accuracy, outputs", outputs.scores, *baseline)
    yield MeasuredValue("accuracy, outputs and states", patient.scores, *baseline)
    yield MeasuredValue("accuracy, outputs and states", patient.scores, "outputs", outputs.scores)


def _student_equals_teacher(toy: ToyModels) -> CheckResults:
    teacher = toy.fine_tuned(TASK)
    examples = toy.examples(TASK)[:16]
    stage = CompressionMethod.load("pkd-skip").stages[0]
    distillation = TeacherTaskDistillation(teacher, stage.losses, ConstantSchedule(value=0.0))
    report = first_step(teacher, teacher.task, examples, distillation, **toy.settings())
    for name in ("outputs", "states"):
        yield expect_equal(
            f"{name} of a student equal to its teacher", report.losses[name], 0, 1e-5
        )
    yield expect_equal("the gradient of both", report.gradient_norm, 0, 1e-4)
    weightless = [
        term.model_copy(update={"weight": ConstantSchedule(value=0.0)}) for term in stage.losses
    ]
    student = prune_layers(teacher, [0, 1])
    distillation = TeacherTaskDistillation(teacher, weightless, ConstantSchedule(value=1.0))
    plain, distilled = (
        toy.finetune(student, TASK, distillation=d, epochs=1) for d in (None, distillation)
    )
    yield expect_same(
        "without weights it is fine-tuning, bit for bit", same_weights(plain, distilled), True
    )


CHECK = CompressionCheck(
    "C2",
    "patient",
    "Do hidden states help more than outputs, and outputs more than labels?",
    "Sun et al. 2019",
    run,
)
