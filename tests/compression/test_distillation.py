"""A teacher beside the labels: what is equal costs nothing, and what is heard is learned."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertwright.compression.distillation import Distillation, taught_outputs
from bertwright.compression.signals import Signal
from bertwright.compression.signals.outputs import OfOutputs, Outputs, divergence
from bertwright.compression.students import layers_taken, shortened
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss
from bertwright.schedules import Constant
from bertwright.tasks.answers import Answer, OptionAnswer, SpanAnswer
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.parts import Turns, plans_of
from bertwright.tasks.task import Task
from bertwright.tasks.task_batches import Batches
from bertwright.tasks.task_training import unwatched
from bertwright.tasks.teaching import Lesson
from bertwright.training.clock import Place
from small_tasks import classes, numbers, options, questions, several_labels, similar, tagged

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
TAGS = tagging_task("colours")
LABELS = table_task("colours", Columns(), "labels")
SPANS, OPTIONS = Task("asked", SpanAnswer()), Task("chosen", OptionAnswer())
CLOSE = Task("near", Answer.choose({"kind": "closeness", "loss": "cosine", "highest": 5.0}))
RELEVANT = Task("asked for", Answer.choose("relevance"))

EVERYTHING = [
    {"kind": "outputs", "temperature": 2.0},
    {"kind": "outputs", "distance": "squared"},
    {"kind": "states", "layers": {"embeddings": True}},
    {"kind": "states", "distance": "cosine", "places": "first"},
    {"kind": "states", "divided": "length"},
    {"kind": "states", "divided": "deviation", "order": "upwards"},
    {"kind": "attention"},
    {"kind": "attention", "of": "weights", "order": "in-turn"},
    {"kind": "relations", "heads": 2},
    {"kind": "moments"},
    {"kind": "moments", "of": "variance", "order": "in-turn"},
]
QUICK = {"rate": 3e-3, "dropout": 0.0, "decay": 0.0, "compile": False, "batch": 8, "epochs": 1}


def signals(*stated: dict[str, object]) -> list[Signal]:
    return [Signal.choose(each) for each in stated]


def taught(model: TextModel, task: Task = CLASSES, examples=None, **settings) -> FineTuned:
    examples = examples or classes()
    found = finetune(model, task, train=examples, dev=examples, **QUICK | settings).model
    return FineTuned(found.net, found.tokenizer, found.task, found.maker.length, "float32")


def only(*stated: dict[str, object], teacher: FineTuned) -> Distillation:
    """Nothing of the labels."""
    return Distillation(teacher, signals(*stated), Constant(value=0.0))


class Step:
    """One step of a student as it begins, looked at from outside."""

    def __init__(
        self, student: TextModel, teacher: Distillation, examples=None, **settings
    ) -> None:
        task, examples = teacher.teacher.task, examples or classes()
        chosen = FineTuning.of(QUICK | settings)
        given = [(task, examples, examples)]
        self.training = prepare_training(student, given, chosen, unwatched, None, teacher)
        self.training._begin(0)
        self.net, self.teaching = self.training.net, self.training.teaching
        assert self.teaching is not None
        plans = plans_of(self.training.parts, chosen.batch, 0)
        turns = Turns.of(plans, 1.0, 0)
        seen, counts = self.training.seen, self.teaching.counts
        batches = Batches(student, self.training.parts, plans, turns, seen, False, counts)
        self.batch = batches.at(Place(0, 0.0))

    def losses(self, progress: float = 0.0) -> dict[str, Loss]:
        """Of the whole step, its micro-batches together."""
        found: dict[str, Loss] = {}
        for batch in self.batch.micro_batches:
            document = batch.coordinates.document
            wanted = self.net.head(0).places(batch.pieces, document, batch.where)
            with self.net.encoder.record(*self.teaching.sites, gradients=True) as values:
                states = self.net.states(0, batch.pieces, batch.coordinates, wanted)
            outputs = self.net.answer(0, states, document, batch.sizes)[: sum(batch.item_sizes)]
            for name, loss in self.teaching.losses(
                Lesson(batch, outputs, values, progress)
            ).items():
                before = found.get(name)
                found[name] = (
                    loss
                    if before is None
                    else Loss(before.sum + loss.sum, before.count + loss.count, loss.correct)
                )
        return found


def test_a_student_that_is_its_teacher_has_nothing_to_learn(pretrained) -> None:
    teacher = taught(pretrained())
    step = Step(teacher, only(*EVERYTHING, teacher=teacher))
    step.net.load_state_dict(
        {f"heads.0.{n}": t for n, t in teacher.net.head.state_dict().items()}, strict=False
    )
    for progress in (0.0, 0.99):
        losses = step.losses(progress)
        assert len(losses) == len(EVERYTHING)
        sum(loss.sum for loss in losses.values()).backward()
        assert max(abs(loss.sum.item()) for loss in losses.values()) < 1e-4
        gradients = [p.grad for p in step.net.encoder.parameters() if p.grad is not None]
        assert gradients
        assert max(g.abs().max().item() for g in gradients) < 1e-4


def test_a_loss_is_divided_by_what_it_counts(pretrained) -> None:
    student = shortened(pretrained(), [1])
    teacher = taught(pretrained())
    step = Step(student, only(*EVERYTHING, teacher=teacher))
    for name, loss in step.losses().items():
        assert loss.count == step.batch.counts[name], name
        assert loss.sum.item() > 0, name


@pytest.mark.parametrize(("task", "examples"), [(CLASSES, classes()), (TAGS, tagged())])
def test_neighbours_and_padding_change_no_loss(pretrained, task, examples) -> None:
    teacher = taught(pretrained(), task, examples)
    longer = (
        [replace(e, first=e.first + " and so on" * (n % 3)) for n, e in enumerate(examples)]
        if task is CLASSES
        else examples
    )
    sums: list[dict[str, float]] = []
    for batch in (1, 8):
        student, told = shortened(pretrained(), [0]), only(*EVERYTHING, teacher=teacher)
        found: dict[str, float] = {}
        for some in [longer[:8]] if batch == 8 else [[each] for each in longer[:8]]:
            step = Step(student, told, some, batch=batch)
            for name, loss in step.losses().items():
                found[name] = found.get(name, 0.0) + loss.sum.item()
        sums.append(found)
    assert sums[0] == pytest.approx(sums[1], rel=1e-4)


@pytest.mark.processor
def test_no_weight_is_plain_training(pretrained) -> None:
    teacher = taught(pretrained())
    silent = [{**each, "weight": 0.0} for each in EVERYTHING]
    student = shortened(pretrained(), [0])
    examples = classes()
    plain, beside = (
        finetune(student, CLASSES, train=examples, dev=examples, teacher=told, **QUICK)
        for told in (None, Distillation(teacher, signals(*silent), Constant(value=1.0)))
    )
    for name, tensor in plain.model.net.state_dict().items():
        # A bias seems to sum its gradient in another order where others are added to that of its
        # layer, on processors with AVX2; all else is equal bit for bit.
        tolerance = 1e-8 if name.endswith(".bias") else 0.0
        other = beside.model.net.state_dict()[name]
        assert torch.allclose(tensor, other, rtol=0, atol=tolerance), name


def test_a_narrow_student_learns_through_a_map_that_is_not_kept(pretrained, tmp_path) -> None:
    teacher = taught(pretrained())
    student = pretrained("bert", "encoder.width=16", "encoder.feed_forward.width=32")
    told = only({"kind": "states", "layers": {"embeddings": True}}, teacher=teacher)
    step = Step(student, told)
    sum(loss.sum for loss in step.losses().values()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in step.teaching.parameters())
    examples = classes()
    result = finetune(
        student, CLASSES, train=examples, dev=examples, teacher=told, out=tmp_path / "a", **QUICK
    )
    assert result.training.trained_share() == 1.0
    assert not [name for name in result.model.net.state_dict() if "teaching" in name]


@pytest.mark.parametrize(
    ("task", "examples"),
    [
        (CLASSES, classes()),
        (NUMBERS, numbers()),
        (TAGS, tagged()),
        (LABELS, several_labels()),
        (SPANS, questions()),
        (OPTIONS, options()),
        (CLOSE, similar()),
        (RELEVANT, similar()),
    ],
    ids=lambda given: given.answer.own_kind() if isinstance(given, Task) else "",
)
def test_answers_are_learned_from_the_teacher_alone(pretrained, task, examples) -> None:
    teacher = taught(pretrained(), task, examples, epochs=12)
    outputs = {"kind": "outputs", "temperature": 2.0}
    result = finetune(
        shortened(teacher, [0, 1]),
        task,
        train=examples,
        dev=examples,
        teacher=only(outputs, teacher=teacher),
        **QUICK | {"epochs": 16},
    )
    right = task.score(examples, teacher.predict(examples))
    (found,) = result.best.report.scores.values()
    first = next(iter(right))
    assert found[first] == pytest.approx(right[first], abs=20 if task is NUMBERS else 0.1)


def test_what_has_not_learned_to_answer_is_not_judged_by_its_answers(pretrained) -> None:
    teacher, examples = taught(pretrained()), classes()
    inside, run = {"kind": "states"}, {"train": examples, "dev": examples, **QUICK, "epochs": 4}
    for labels in (0.0, 1.0):
        told = Distillation(teacher, signals(inside), Constant(value=labels))
        found = finetune(shortened(teacher, [0]), CLASSES, teacher=told, patience=1, **run)
        scores = [each.score for each in found.training.epochs_seen]
        last = 4 if labels == 0.0 else 1 + scores.index(max(scores))
        assert found.best.report.epoch == last
        assert found.training.epochs_seen[-1].epoch == (4 if labels == 0.0 else last + 1)


def test_what_a_teacher_of_numbers_says_is_what_its_head_said_in_training(pretrained) -> None:
    teacher = taught(pretrained(), NUMBERS, numbers(), epochs=4)
    part = Step(pretrained(), only({"kind": "outputs"}, teacher=teacher), numbers()).training.parts[
        0
    ]
    said = np.array([p.answer for p in teacher.predict(numbers())])
    outputs = torch.cat(taught_outputs(teacher, part))[:, 0].numpy()
    label = np.array([e.label for e in numbers()])
    np.testing.assert_allclose(outputs * label.std() + label.mean(), said, rtol=1e-4)


def test_a_teacher_of_other_pieces_is_heard_by_its_answers_alone(pretrained) -> None:
    teacher = taught(pretrained("roberta"))
    student, examples = pretrained(), classes()
    run = {"train": examples, "dev": examples, **QUICK}
    finetune(student, CLASSES, teacher=only({"kind": "outputs"}, teacher=teacher), **run)
    with pytest.raises(UserError, match="as other pieces than its student"):
        finetune(student, CLASSES, teacher=only({"kind": "states"}, teacher=teacher), **run)


def test_what_cannot_be_taught_is_said(pretrained) -> None:
    teacher, examples = taught(pretrained()), classes()
    other = [Example(e.first, label=f"so {e.label}") for e in examples]
    told = only({"kind": "outputs"}, teacher=teacher)
    with pytest.raises(UserError, match="both need the same labels"):
        finetune(pretrained(), CLASSES, train=other, dev=other, teacher=told, **QUICK)
    run = {"train": examples, "dev": examples, **QUICK}
    with pytest.raises(UserError, match="nothing to say to a frozen encoder"):
        finetune(pretrained(), CLASSES, teacher=told, adaptation="frozen", **run)
    with pytest.raises(UserError, match="set length to"):
        finetune(
            pretrained(),
            table_task("colours", Columns(), {"kind": "class", "stride": 2}),
            teacher=told,
            length=8,
            **run,
        )
    with pytest.raises(UserError, match="cannot be cut into 5 heads"):
        finetune(
            pretrained(),
            CLASSES,
            teacher=only({"kind": "relations", "heads": 5}, teacher=teacher),
            **run,
        )


@given(st.lists(st.floats(-8, 8), min_size=6, max_size=6), st.floats(-50, 50))
def test_of_answers_a_constant_says_nothing_and_much_heat_leaves_squares(
    logits: list[float], constant: float
) -> None:
    own, others = torch.tensor(logits, dtype=torch.float64).view(2, 1, 3)
    assert divergence(own + constant, own, 2.0).item() == pytest.approx(0, abs=1e-9)
    apart: Tensor = own - others
    squares = (apart - apart.mean()).square().sum() / (2 * 3)
    found = divergence(own, others, 2000.0).item()
    assert found == pytest.approx(squares.item(), rel=0.02, abs=1e-6)


def test_layers_are_taken_as_they_are(pretrained) -> None:
    model = pretrained("bert", "encoder.depth.layers=4")
    assert shortened(model, range(4)).model.recipe == model.model.recipe
    small = shortened(model, [0, 3])
    with model.model.encoder.record("blocks.0.residual") as whole:
        model.encode("the red bird")
    with small.model.encoder.record("blocks.0.residual") as left:
        small.encode("the red bird")
    assert torch.equal(whole["blocks.0.residual"], left["blocks.0.residual"])
    theirs, ours = model.model.encoder.blocks[3], small.model.encoder.blocks[1]
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(UserError, match="share nothing"):
        shortened(pretrained("albert"), [0])


def test_which_layers_are_taken() -> None:
    # DistilBERT's six of twelve are 0, 2, 4, 7, 9, 11 (Sanh et al. 2019).
    assert layers_taken(6, 12) == [0, 2, 4, 7, 9, 11]
    assert layers_taken(3, 12, "first") == [0, 1, 2]
    assert layers_taken(3, 12, "last") == [9, 10, 11]
    with pytest.raises(UserError, match="choose from 1 to 12"):
        layers_taken(13, 12)


def test_a_mean_is_over_what_is_chosen_between() -> None:
    logits, taught = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    heard = SimpleNamespace(logits=logits, taught_logits=taught, outputs=logits.view(-1, 1))
    whole, mean = (OfOutputs(Outputs(mean=each))(heard) for each in (False, True))
    assert torch.isclose(mean * 5, whole)
