"""A teacher beside the text: what is equal costs nothing, runs go on, and nothing of it is kept."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from small_recipe import small

from bertwright.compression.lessons.lessons import LESSONS, Lessons
from bertwright.compression.method import names_in
from bertwright.compression.students import shortened
from bertwright.errors import UserError
from bertwright.model.model import Model, TensorBatch
from bertwright.model.text_model import TextModel
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.run_folder import fitted
from recipes_at_toy_size import shaken

HEARD = {"distil-mlm": (2, 2), "tiny-general": (2, 2), "relations": (1, 1)}
HEARD |= {"mobile-progressive": (4, 1)}
"""How many signals of each lesson, at the beginning of a run and at its end."""
TOGETHER = {name for name in names_in(LESSONS) if Lessons.load(name).together}
"""Those of a teacher that learns, too, have tests of their own."""
FROZEN = sorted(set(names_in(LESSONS)) - TOGETHER)
BERT = (
    "encoder.depth.layers=4",
    "encoder.dropout=0",
    "encoder.mixer.dropout=0",
    "encoder.initialisation={kind: width-aware}",
    "objectives.next-sentence=null",
)


def model_of(data: Data, *changes: str, **settings) -> TextModel:
    recipe = fitted(small("bert", *BERT, *changes), data)
    return TextModel(Model.build(recipe, data.tokenizer.size), data.tokenizer, "float32")


def lessons(name: str) -> Lessons:
    found = Lessons.load(name)
    if name != "relations":
        return found
    (stage,) = found.stages
    heard = tuple(signal.model_copy(update={"heads": 2}) for signal in stage.signals)
    return found.model_copy(update={"stages": (stage.model_copy(update={"signals": heard}),)})


def losses_at(
    progress: float, student: TextModel, teacher: TextModel, name: str, data: Data
) -> dict[str, float]:
    """Of the first step, as if it stood there in the run."""
    teaching = lessons(name).of(teacher).teaching(student.model, data)
    teaching.begin(0)
    recipe = student.model.recipe
    step, place = RecipeBatches(recipe, data)(Place(0, 0.0)), Place(0, progress)
    losses = RecipeLosses(recipe, student.model, teaching=teaching)
    found: dict[str, float] = {}
    counts = teaching.prepared(step, place).counts
    for batch in step.micro_batches:
        for of, loss in losses(batch, place).items():
            if of not in step.counts:
                found[of] = found.get(of, 0.0) + loss.sum.item() / counts[of]
    return found


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("name", FROZEN)
def test_a_student_that_is_its_teacher_has_nothing_to_learn(
    data: Data, name: str, end: int
) -> None:
    teacher = model_of(data)
    found = losses_at(end, teacher, teacher, name, data)
    assert len(found) == HEARD[name][end]
    assert max(map(abs, found.values())) < 1e-5
    student = shortened(teacher, [0, 1])
    shaken(student.model, 0.2)
    other = losses_at(end, student, teacher, name, data)
    assert min(other.values()) > 1e-4
    student.model.recipe = student.model.recipe.model_copy(update={"micro_batch_tokens": 64})
    parts = losses_at(end, student, teacher, name, data)
    np.testing.assert_allclose(list(parts.values()), list(other.values()), rtol=1e-4)


@torch.no_grad()
def said(model: Model, batch: TensorBatch, where: torch.Tensor) -> torch.Tensor:
    """The logarithms of what stands in these places, at temperature 2."""
    states = model.encoder(batch.pieces, batch.coordinates).flatten(0, 1)
    return F.log_softmax(model.logits(states[where]) / 2, -1)


@pytest.mark.parametrize("places", ["hidden", "all"])
def test_outputs_are_compared_where_the_stage_says(data: Data, places: str) -> None:
    teacher, own = model_of(data), Lessons.load("distil-mlm")
    stages = tuple(each.model_copy(update={"places": places}) for each in own.stages)
    student = shortened(teacher, [0, 1])
    shaken(student.model, 0.2)
    teaching = own.model_copy(update={"stages": stages}).of(teacher).teaching(student.model, data)
    recipe, place = student.model.recipe, Place(0, 0.0)
    step = teaching.prepared(RecipeBatches(recipe, data)(place), place)
    losses = RecipeLosses(recipe, student.model, teaching=teaching)
    total, number = 0.0, 0
    for batch in (TensorBatch(each) for each in step.micro_batches):
        where = (batch.coordinates.document >= 0).flatten().nonzero().flatten()
        if places == "hidden":
            asked = batch.questions["masked"]
            where = asked.where if asked.weight is None else asked.where[asked.weight > 0]
        own, others = (said(each.model, batch, where) for each in (student, teacher))
        total += 4 * F.kl_div(own, others, reduction="sum", log_target=True).item()
        number += len(where)
    found = sum(losses(batch, place)["outputs"].sum.item() for batch in step.micro_batches)
    assert step.counts["outputs"] == number
    assert found == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("name", FROZEN)
def test_a_run_with_a_teacher_goes_on_bit_for_bit(data: Data, tmp_path: Path, name: str) -> None:
    teacher = lessons(name).of(model_of(data))
    narrow = (
        ("encoder.width=16", "encoder.depth.layers=2")
        if name == "tiny-general"
        else ("encoder.depth.layers=2",)
    )
    recipe = small("bert", *BERT, *narrow, "steps=6", "checkpoint_every=3")
    whole = pretrain(recipe, data, tmp_path / "whole", teacher=teacher, quiet=True)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop)
        pretrain(recipe, data, tmp_path / "parts", teacher=teacher, quiet=True)
    again = pretrain(recipe, data, tmp_path / "parts", teacher=teacher, quiet=True, resume=True)
    first, second = (load_file(p.path / "model.safetensors") for p in (whole, again))
    assert not [key for key in first if "teaching" in key]
    assert all(torch.equal(first[key], second[key]) for key in first)


class Stopped(Exception):
    """Behind the first checkpoint."""


def stop(*_: object) -> None:
    raise Stopped


def test_a_teacher_may_have_more_rows_than_pieces(data: Data, tmp_path: Path) -> None:
    recipe = small("bert", *BERT, "steps=1")
    large = Model.build(fitted(recipe, data), data.tokenizer.size + 7)
    teacher = TextModel(large, data.tokenizer, "float32")
    teacher.save(tmp_path / "large")
    given = {"start_from": tmp_path / "large", "quiet": True}
    own = Lessons.load("distil-mlm").of(teacher)
    pretrain(recipe, data, tmp_path / "out", teacher=own, **given)


def test_a_run_keeps_the_teacher_it_began_with(data: Data, tmp_path: Path) -> None:
    recipe = small("bert", *BERT, "steps=2", "checkpoint_every=1")
    teacher = Lessons.load("distil-mlm").of(model_of(data))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop)
        pretrain(recipe, data, tmp_path / "out", teacher=teacher, quiet=True)
    alike = model_of(data)
    next(alike.model.encoder.blocks.parameters()).data += 1
    for other, said in [
        (Lessons.load("distil-mlm").of(alike), "was started with another"),
        (None, "was started with a teacher"),
        (Lessons.load("distil-mlm").of(model_of(data, "seed=4")), "was started with another"),
    ]:
        with pytest.raises(UserError, match=said):
            pretrain(recipe, data, tmp_path / "out", teacher=other, quiet=True, resume=True)


def test_what_teaches_nothing_is_said(data: Data, tmp_path: Path) -> None:
    teacher = Lessons.load("distil-mlm").of(model_of(data))
    for changes, said in [
        (("objectives.masked=null", "objectives.causal={}"), "fills hidden"),
        (("phases=[{share: 1, depth: 0.5}, {share: 1}]",), "a stack that grows has no teacher"),
    ]:
        with pytest.raises(UserError, match=said):
            pretrain(small("bert", *BERT, *changes), data, tmp_path / "o", teacher=teacher)
    assert not (tmp_path / "o").exists()
