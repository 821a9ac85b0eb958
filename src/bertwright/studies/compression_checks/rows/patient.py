"""A student of the first blocks that learns the answers of its teacher, and its first states."""

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.distillation import Distillation
from bertwright.compression.method import Method
from bertwright.compression.students import shortened
from bertwright.schedules import Constant
from bertwright.studies.compression_checks.first_steps import first_step, same_weights
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

TASK = "inference"


def run(ground: Ground) -> Came:
    """The same student with the labels alone, with outputs, and with states, too.

    Twice as many seeds as elsewhere: what a teacher adds is less than what seeds differ by. And
    twice as many examples: of fewer, two blocks learn nothing of pairs, whoever teaches.
    """
    yield from _identities(ground)
    teacher, student = ground.tuned(TASK), shortened(ground.pretrained, [0, 1])
    seeds, given = range(2 * ground.size.seeds), ground.given(TASK, 2 * ground.size.examples)
    outputs = ground.compressed(teacher, "output-distillation", seeds, given=given, student=student)
    patient = ground.compressed(
        teacher, "pkd-skip", seeds, given=given, student=student, alone=True
    )
    yield Measured("accuracy, teacher", [patient.of_teacher])
    alone = "labels alone", patient.alone
    yield Measured("accuracy, outputs", outputs.scores, *alone)
    yield Measured("accuracy, outputs and states", patient.scores, *alone)
    yield Measured("accuracy, outputs and states", patient.scores, "outputs", outputs.scores)


def _identities(ground: Ground) -> Came:
    teacher = ground.tuned(TASK)
    examples = ground.examples(TASK)[:16]
    stage = Method.load("pkd-skip").stages[0]
    silent = Distillation(teacher, stage.signals, Constant(value=0.0))
    report = first_step(teacher, teacher.task, examples, silent, **ground.settings())
    for name in ("outputs", "states"):
        yield equal(f"{name} of a student that is its teacher", report.losses[name], 0, 1e-5)
    yield equal("the gradient of both", report.norm, 0, 1e-4)
    weightless = [s.model_copy(update={"weight": Constant(value=0.0)}) for s in stage.signals]
    student = shortened(teacher, [0, 1])
    plain, beside = (
        ground.finetuned(student, TASK, teacher=who, epochs=1)
        for who in (None, Distillation(teacher, weightless, Constant(value=1.0)))
    )
    yield same("without weights it is fine-tuning, bit for bit", same_weights(plain, beside), True)


ROW = Row(
    "C2",
    "patient",
    "Do states of layers teach more than answers, and answers more than labels?",
    "Sun et al. 2019",
    run,
)
