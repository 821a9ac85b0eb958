"""A recurrent student that knows words alone, taught by logits to many changed texts."""

import numpy as np

from bertwright.analysis.planted.expecting import Expected, equal
from bertwright.compression.compressing import num_parameters
from bertwright.compression.distillation import Distillation
from bertwright.compression.signals import Signal
from bertwright.schedules import Constant
from bertwright.studies.compression_checks.first_steps import first_step
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.fine_tuned import FineTuned

TASK = "sentiment"
LOGITS = {"kind": "outputs", "distance": "squared", "mean": True}
CHANGED = {"kind": "words", "copies": 10, "hidden": 0.1, "exchanged": 0.1, "stretch": 0.0}
STUDENT = {
    "extends": "bilstm-student",
    "encoder": {"width": 48, "embeddings": {"width": 32}, "dropout": 0.0},
}


def run(ground: Ground) -> Came:
    """Labels, what the teacher says of the same texts, and of ten times as many that were made of
    them."""
    teacher, given = ground.tuned(TASK), ground.given(TASK, 2 * ground.size.few)
    yield _of_itself(ground, teacher)
    student = ground.file("c9-student", STUDENT)
    taught = {"labels": 0, "signals": [LOGITS]}
    soft = ground.method("c9-soft", {"stages": [taught]})
    more = ground.method("c9-more", {"stages": [{**taught, "augmentation": CHANGED}]})
    found = ground.compressed(teacher, soft, given=given, student=student, alone=True)
    changed = ground.compressed(teacher, more, given=given, student=student)
    small = found.best.model
    yield _beside_others(ground, FineTuned(small.net, small.tokenizer, small.task, None, "float32"))
    sizes = [num_parameters(model)["without_tables"] for model in (teacher, small)]
    yield Measured("times fewer parameters, tables aside", [sizes[0] / sizes[1]])
    yield Measured("accuracy, logits", found.scores, "labels alone", found.alone)
    yield Measured("accuracy, logits to changed texts", changed.scores, "logits", found.scores)


def _of_itself(ground: Ground, teacher: FineTuned) -> Expected:
    told = Distillation(teacher, [Signal.choose(LOGITS)], Constant(value=0.0))
    examples = ground.examples(TASK)[:16]
    report = first_step(teacher, teacher.task, examples, told, **ground.settings())
    return equal("logits of a student that is its teacher", report.losses["outputs"], 0, 1e-6)


def _beside_others(ground: Ground, small: FineTuned) -> Expected:
    """Rows that are filled up beside longer ones, and each by itself."""
    examples = ground.judge(TASK)[:12]
    rows = small.answering.rows(small.maker, examples)
    together, alone = small.outputs(rows), [small.outputs([row])[0] for row in rows]
    what = "outputs of a recurrent student, beside others and alone"
    return equal(what, np.concatenate(together), np.concatenate(alone), 1e-5)


ROW = Row(
    "C9",
    "recurrent",
    "Can a BiLSTM learn a transformer's logits, and do changed texts help it?",
    "Tang et al. 2019",
    run,
)
