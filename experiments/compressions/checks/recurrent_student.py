"""A recurrent, word-level student, distilled by the logits of many augmented texts."""

import numpy as np

from bertwright.compression.compress import num_parameters
from bertwright.compression.distillation.fine_tuning_loss import TeacherTaskDistillation
from bertwright.compression.distillation.losses import DistillationTermConfig
from bertwright.core.schedules import ConstantSchedule
from bertwright.tasks.fine_tuned_model import FineTunedModel
from experiments.analyses.expecting import ExpectedValue, expect_equal
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.first_steps import first_step
from experiments.compressions.toy_models import ToyModels

TASK = "sentiment"
LOGIT_LOSS = {"kind": "outputs", "distance": "squared", "mean": True}
AUGMENTATION = {
    "kind": "words",
    "num_copies": 10,
    "mask_probability": 0.1,
    "replace_probability": 0.1,
    "ngram_probability": 0.0,
}
STUDENT = {
    "extends": "bilstm-student",
    "encoder": {"width": 48, "embeddings": {"width": 32}, "dropout": 0.0},
}


def run(toy: ToyModels) -> CheckResults:
    """Compare labels, the teacher's logits, and its logits of ten times as many augmented texts."""
    teacher, data = toy.fine_tuned(TASK), toy.task_data(TASK, 2 * toy.size.few_examples)
    yield _student_equals_teacher(toy, teacher)
    student = toy.write_yaml("c9-student", STUDENT)
    stage = {"objective_weight": 0, "losses": [LOGIT_LOSS]}
    soft = toy.write_method("c9-soft", {"stages": [stage]})
    more = toy.write_method("c9-more", {"stages": [{**stage, "augmentation": AUGMENTATION}]})
    distilled = toy.compress(teacher, soft, task_data=data, student=student, with_baseline=True)
    augmented = toy.compress(teacher, more, task_data=data, student=student)
    small = distilled.best.model
    yield _batch_independence(
        toy, FineTunedModel(small.task_model, small.tokenizer, small.task, None, "float32")
    )
    sizes = [num_parameters(model)["without_embeddings"] for model in (teacher, small)]
    yield MeasuredValue("times fewer parameters, without embeddings", [sizes[0] / sizes[1]])
    scores = distilled.scores
    yield MeasuredValue("accuracy, logits", scores, "labels only", distilled.baseline_scores)
    yield MeasuredValue("accuracy, logits of augmented texts", augmented.scores, "logits", scores)


def _student_equals_teacher(toy: ToyModels, teacher: FineTunedModel) -> ExpectedValue:
    distillation = TeacherTaskDistillation(
        teacher, [DistillationTermConfig.parse(LOGIT_LOSS)], ConstantSchedule(value=0.0)
    )
    examples = toy.examples(TASK)[:16]
    report = first_step(teacher, teacher.task, examples, distillation, **toy.settings())
    return expect_equal(
        "logits of a student equal to its teacher", report.losses["outputs"], 0, 1e-6
    )


def _batch_independence(toy: ToyModels, student: FineTunedModel) -> ExpectedValue:
    """Check that padding and neighbours change no output."""
    examples = toy.evaluation_examples(TASK)[:12]
    sequences = student.output_decoder.encode(student.example_encoder, examples)
    batched = student.head_outputs(sequences)
    single = [student.head_outputs([sequence])[0] for sequence in sequences]
    name = "outputs of a recurrent student, in a batch and alone"
    return expect_equal(name, np.concatenate(batched), np.concatenate(single), 1e-5)


CHECK = CompressionCheck(
    "C9",
    "recurrent",
    "Can a BiLSTM learn a transformer's logits, and does augmentation help?",
    "Tang et al. 2019",
    run,
)
