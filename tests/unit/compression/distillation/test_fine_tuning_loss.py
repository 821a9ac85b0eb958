"""Distillation in fine-tuning: equal models have no loss, and a student learns from its teacher."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertwright.compression.distillation.fine_tuning_loss import (
    TeacherTaskDistillation,
    teacher_outputs,
)
from bertwright.compression.distillation.losses import DistillationTermConfig
from bertwright.compression.distillation.losses.outputs import (
    OutputLoss,
    OutputLossConfig,
    soft_kl_divergence,
)
from bertwright.compression.pruning.layers import prune_layers, select_layers
from bertwright.core.errors import UserError
from bertwright.core.schedules import ConstantSchedule
from bertwright.models.text_model import TextModel
from bertwright.objectives.model_output import Loss
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.batches import TaskBatchSource
from bertwright.tasks.finetuning.batching.encoded_task import TaskSchedule, batch_samplers
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import MultipleChoiceOutput, OutputType, SpanOutput
from bertwright.tasks.task import Task
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import StudentOutputs
from small_tasks import classes, numbers, options, questions, several_labels, similar, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
TAGS = tagging_task("colours")
LABELS = table_task("colours", Columns(), "labels")
SPANS, OPTIONS = Task("spans", SpanOutput()), Task("options", MultipleChoiceOutput())
CLOSE = Task("near", OutputType.parse({"kind": "similarity", "loss": "cosine", "max_label": 5.0}))
RELEVANT = Task("relevance", OutputType.parse("relevance"))

EVERYTHING = [
    {"kind": "outputs", "temperature": 2.0},
    {"kind": "outputs", "distance": "squared"},
    {"kind": "states", "layers": {"embeddings": True}},
    {"kind": "states", "distance": "cosine", "positions": "first"},
    {"kind": "states", "normalisation": "length"},
    {"kind": "states", "normalisation": "deviation", "order": "cumulative"},
    {"kind": "attention"},
    {"kind": "attention", "target": "weights", "order": "sequential"},
    {"kind": "relations", "heads": 2},
    {"kind": "moments"},
    {"kind": "moments", "moment": "variance", "order": "sequential"},
]
QUICK = {
    "learning_rate": 3e-3,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "compile": False,
    "batch_size": 8,
    "epochs": 1,
}


def terms(*settings: dict[str, object]) -> list[DistillationTermConfig]:
    return [DistillationTermConfig.parse(term) for term in settings]


def fine_tuned(model: TextModel, task: Task = CLASSES, examples=None, **settings) -> FineTunedModel:
    examples = examples or classes()
    tuned = finetune(model, task, train=examples, dev=examples, **QUICK | settings).model
    return FineTunedModel(
        tuned.task_model, tuned.tokenizer, tuned.task, tuned.example_encoder.max_length, "float32"
    )


def without_labels(
    *settings: dict[str, object], teacher: FineTunedModel
) -> TeacherTaskDistillation:
    return TeacherTaskDistillation(teacher, terms(*settings), ConstantSchedule(value=0.0))


class Step:
    """The first step of a student."""

    def __init__(
        self, student: TextModel, distillation: TeacherTaskDistillation, examples=None, **settings
    ) -> None:
        task, examples = distillation.teacher.task, examples or classes()
        config = FineTuningConfig.from_settings(QUICK | settings)
        data = [(task, examples, examples)]
        self.run = build_run(student, data, config, distillation=distillation)
        self.run.init_parameters(0)
        self.net, self.loss = self.run.model, self.run.distillation_loss
        assert self.loss is not None
        samplers = batch_samplers(self.run.encoded_tasks, config.batch_size, 0)
        batches = TaskBatchSource(
            student,
            self.run.encoded_tasks,
            samplers,
            TaskSchedule.from_samplers(samplers, 1.0, 0),
            self.run.used_vocabulary,
        )
        self.batch = self.loss.prepare_step(batches.at(Progress(0, 0.0)), Progress(0, 0.0))

    def losses(self, fraction: float = 0.0) -> dict[str, Loss]:
        """Return the losses summed over micro-batches."""
        total: dict[str, Loss] = {}
        for batch in self.batch.micro_batches:
            document_ids = batch.token_info.document_ids
            positions = self.net.head_of(0).output_positions(
                batch.token_ids, document_ids, batch.positions
            )
            taps = self.loss.taps(Progress(0, fraction))
            with self.net.encoder.record(*taps, output_gradients=True) as values:
                states = self.net.hidden_states(0, batch.token_ids, batch.token_info, positions)
            outputs = self.net.head_outputs(0, states, document_ids, batch.output_lengths)[
                : sum(batch.item_output_lengths)
            ]
            student_outputs = StudentOutputs(batch, values, Progress(0, fraction), outputs)
            for name, loss in self.loss.losses(student_outputs).items():
                before = total.get(name)
                total[name] = (
                    loss
                    if before is None
                    else Loss(before.sum + loss.sum, before.count + loss.count, loss.num_correct)
                )
        return total


def test_a_student_equal_to_its_teacher_has_no_loss(pretrained) -> None:
    teacher = fine_tuned(pretrained())
    step = Step(teacher, without_labels(*EVERYTHING, teacher=teacher))
    step.net.load_state_dict(
        {f"heads.0.{n}": t for n, t in teacher.task_model.head.state_dict().items()}, strict=False
    )
    for fraction in (0.0, 0.99):
        losses = step.losses(fraction)
        assert len(losses) == len(EVERYTHING)
        sum(loss.sum for loss in losses.values()).backward()
        assert max(abs(loss.sum.item()) for loss in losses.values()) < 1e-4
        gradients = [p.grad for p in step.net.encoder.parameters() if p.grad is not None]
        assert gradients
        assert max(g.abs().max().item() for g in gradients) < 1e-4


def test_losses_have_the_counts_of_the_step(pretrained) -> None:
    student = prune_layers(pretrained(), [1])
    teacher = fine_tuned(pretrained())
    step = Step(student, without_labels(*EVERYTHING, teacher=teacher))
    for name, loss in step.losses().items():
        assert loss.count == step.batch.loss_counts[name], name
        assert loss.sum.item() > 0, name


@pytest.mark.parametrize(("task", "examples"), [(CLASSES, classes()), (TAGS, tagged())])
def test_neighbours_and_padding_change_no_loss(pretrained, task, examples) -> None:
    teacher = fine_tuned(pretrained(), task, examples)
    longer = (
        [replace(e, text=e.text + " and so on" * (n % 3)) for n, e in enumerate(examples)]
        if task is CLASSES
        else examples
    )
    sums: list[dict[str, float]] = []
    for batch_size in (1, 8):
        student = prune_layers(pretrained(), [0])
        distillation = without_labels(*EVERYTHING, teacher=teacher)
        totals: dict[str, float] = {}
        for part in [longer[:8]] if batch_size == 8 else [[example] for example in longer[:8]]:
            step = Step(student, distillation, part, batch_size=batch_size)
            for name, loss in step.losses().items():
                totals[name] = totals.get(name, 0.0) + loss.sum.item()
        sums.append(totals)
    assert sums[0] == pytest.approx(sums[1], rel=1e-4)


@pytest.mark.processor
def test_losses_of_weight_0_change_nothing(pretrained) -> None:
    teacher = fine_tuned(pretrained())
    weightless = [{**term, "weight": 0.0} for term in EVERYTHING]
    student = prune_layers(pretrained(), [0])
    examples = classes()
    plain, distilled = (
        finetune(student, CLASSES, train=examples, dev=examples, distillation=distillation, **QUICK)
        for distillation in (
            None,
            TeacherTaskDistillation(teacher, terms(*weightless), ConstantSchedule(value=1.0)),
        )
    )
    for name, tensor in plain.model.task_model.state_dict().items():
        # On processors with AVX2 the gradient of a bias may be summed in another order; all else
        # is equal bit for bit.
        tolerance = 1e-8 if name.endswith(".bias") else 0.0
        other = distilled.model.task_model.state_dict()[name]
        assert torch.allclose(tensor, other, rtol=0, atol=tolerance), name


def test_a_narrow_student_trains_a_projection_that_is_not_saved(pretrained, tmp_path) -> None:
    teacher = fine_tuned(pretrained())
    student = pretrained("bert", "encoder.width=16", "encoder.feed_forward.width=32")
    term = {"kind": "states", "layers": {"embeddings": True}}
    distillation = without_labels(term, teacher=teacher)
    step = Step(student, distillation)
    sum(loss.sum for loss in step.losses().values()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in step.loss.parameters())
    examples = classes()
    result = finetune(
        student,
        CLASSES,
        train=examples,
        dev=examples,
        distillation=distillation,
        output=tmp_path / "a",
        **QUICK,
    )
    assert result.run.trained_fraction() == 1.0
    names = result.model.task_model.state_dict()
    assert not [name for name in names if "distillation_loss" in name]


@pytest.mark.parametrize(
    ("task", "examples"),
    [
        (CLASSES, classes()),
        (NUMBERS, numbers()),
        (TAGS, tagged()),
        pytest.param(LABELS, several_labels(), marks=pytest.mark.full),
        pytest.param(SPANS, questions(), marks=pytest.mark.full),
        pytest.param(OPTIONS, options(), marks=pytest.mark.full),
        pytest.param(CLOSE, similar(), marks=pytest.mark.full),
        pytest.param(RELEVANT, similar(), marks=pytest.mark.full),
    ],
    ids=lambda value: value.output_type.kind_name() if isinstance(value, Task) else "",
)
def test_a_student_learns_from_the_teacher_without_labels(pretrained, task, examples) -> None:
    teacher = fine_tuned(pretrained(), task, examples, epochs=12)
    outputs = {"kind": "outputs", "temperature": 2.0}
    result = finetune(
        prune_layers(teacher, [0, 1]),
        task,
        train=examples,
        dev=examples,
        distillation=without_labels(outputs, teacher=teacher),
        **QUICK | {"epochs": 16},
    )
    expected = task.score(examples, teacher.predict(examples))
    (scores,) = result.best.report.scores.values()
    metric = next(iter(expected))
    assert scores[metric] == pytest.approx(expected[metric], abs=20 if task is NUMBERS else 0.1)


def test_epochs_are_not_selected_before_the_student_learns_outputs(pretrained) -> None:
    teacher, examples = fine_tuned(pretrained()), classes()
    term, run = {"kind": "states"}, {"train": examples, "dev": examples, **QUICK, "epochs": 4}
    for weight in (0.0, 1.0):
        distillation = TeacherTaskDistillation(teacher, terms(term), ConstantSchedule(value=weight))
        student = prune_layers(teacher, [0])
        result = finetune(student, CLASSES, distillation=distillation, patience=1, **run)
        scores = [report.score for report in result.run.epoch_reports]
        last = 4 if weight == 0.0 else 1 + scores.index(max(scores))
        assert result.best.report.epoch == last
        assert result.run.epoch_reports[-1].epoch == (4 if weight == 0.0 else last + 1)


def test_outputs_of_a_regression_teacher_are_on_training_scale(pretrained) -> None:
    teacher = fine_tuned(pretrained(), NUMBERS, numbers(), epochs=4)
    distillation = without_labels({"kind": "outputs"}, teacher=teacher)
    part = Step(pretrained(), distillation, numbers()).run.encoded_tasks[0]
    predictions = np.array([p.value for p in teacher.predict(numbers())])
    outputs = torch.cat(teacher_outputs(teacher, part))[:, 0].numpy()
    labels = np.array([e.label for e in numbers()])
    np.testing.assert_allclose(outputs * labels.std() + labels.mean(), predictions, rtol=1e-4)


def test_a_teacher_with_other_tokens_is_compared_by_outputs_only(pretrained) -> None:
    teacher = fine_tuned(pretrained("roberta"))
    student, examples = pretrained(), classes()
    run = {"train": examples, "dev": examples, **QUICK}
    outputs, states = (
        without_labels({"kind": kind}, teacher=teacher) for kind in ("outputs", "states")
    )
    finetune(student, CLASSES, distillation=outputs, **run)
    with pytest.raises(UserError, match="tokenizes texts differently than its student"):
        finetune(student, CLASSES, distillation=states, **run)


def test_text_vectors_are_as_wide_as_the_last_layer(pretrained) -> None:
    """The embeddings of recurrent models have another width, which may differ."""
    teacher = fine_tuned(pretrained("bilstm-student"), epochs=0)
    distillation = without_labels({"kind": "vectors"}, teacher=teacher)
    student = pretrained("bilstm-student", "encoder.embeddings.width=16")
    models = teacher.model, student.model
    widths = [model.recipe.encoder.hidden_widths for model in models]
    assert widths == [[48, 32, 32], [32, 32, 32]]
    (loss,) = Step(student, distillation).losses().values()
    assert loss.sum.item() > 0
    wider = pretrained("bilstm-student", "encoder.width=48")
    assert wider.model.recipe.encoder.hidden_widths == [48, 48, 48]
    with pytest.raises(UserError, match="have 48 dimensions and the teacher's 32"):
        Step(wider, distillation)


def test_impossible_distillations_are_refused(pretrained) -> None:
    teacher, examples = fine_tuned(pretrained()), classes()
    other = [Example(e.text, label=f"so {e.label}") for e in examples]
    distillation = without_labels({"kind": "outputs"}, teacher=teacher)
    with pytest.raises(UserError, match="both need the same labels"):
        finetune(pretrained(), CLASSES, train=other, dev=other, distillation=distillation, **QUICK)
    run = {"train": examples, "dev": examples, **QUICK}
    with pytest.raises(UserError, match="frozen encoder"):
        finetune(pretrained(), CLASSES, distillation=distillation, adaptation="frozen", **run)
    with pytest.raises(UserError, match="set max_length to"):
        finetune(
            pretrained(),
            table_task("colours", Columns(), {"kind": "class", "stride": 2}),
            distillation=distillation,
            max_length=8,
            **run,
        )
    with pytest.raises(UserError, match="cannot be split into 5 heads"):
        finetune(
            pretrained(),
            CLASSES,
            distillation=without_labels({"kind": "relations", "heads": 5}, teacher=teacher),
            **run,
        )


@given(st.lists(st.floats(-8, 8), min_size=6, max_size=6), st.floats(-50, 50))
def test_divergence_ignores_a_constant_and_is_squared_error_at_high_temperature(
    logits: list[float], constant: float
) -> None:
    student, teacher = torch.tensor(logits, dtype=torch.float64).view(2, 1, 3)
    shifted = soft_kl_divergence(student + constant, student, 2.0).item()
    assert shifted == pytest.approx(0, abs=1e-9)
    difference: Tensor = student - teacher
    squares = (difference - difference.mean()).square().sum() / (2 * 3)
    divergence = soft_kl_divergence(student, teacher, 2000.0).item()
    assert divergence == pytest.approx(squares.item(), rel=0.02, abs=1e-6)


def test_pruned_layers_keep_their_weights(pretrained) -> None:
    model = pretrained("bert", "encoder.depth.layers=4")
    assert prune_layers(model, range(4)).model.recipe == model.model.recipe
    pruned = prune_layers(model, [0, 3])
    with model.model.encoder.record("blocks.0.residual") as expected:
        model.encode("the red bird")
    with pruned.model.encoder.record("blocks.0.residual") as values:
        pruned.encode("the red bird")
    assert torch.equal(expected["blocks.0.residual"], values["blocks.0.residual"])
    original, kept = model.model.encoder.blocks[3], pruned.model.encoder.blocks[1]
    for a, b in zip(original.parameters(), kept.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(UserError, match="share no parameters"):
        prune_layers(pretrained("albert"), [0])


def test_layer_selection() -> None:
    # DistilBERT's six of twelve are 0, 2, 4, 7, 9, 11 (Sanh et al. 2019).
    assert select_layers(6, 12) == [0, 2, 4, 7, 9, 11]
    assert select_layers(3, 12, "first") == [0, 1, 2]
    assert select_layers(3, 12, "last") == [9, 10, 11]
    with pytest.raises(UserError, match="choose from 1 to 12"):
        select_layers(13, 12)


def test_the_mean_of_outputs_is_over_classes() -> None:
    logits, teacher = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    inputs = SimpleNamespace(
        student_logits=logits, teacher_logits=teacher, student_outputs=logits.view(-1, 1)
    )
    total, mean = (OutputLoss(OutputLossConfig(mean=mean))(inputs) for mean in (False, True))
    assert torch.isclose(mean * 5, total)
