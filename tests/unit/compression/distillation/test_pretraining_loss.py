"""Distillation in pre-training: equal models have no loss, and runs resume."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from bertwright.compression.distillation.losses import VectorLossConfig
from bertwright.compression.distillation.recipe import RECIPES_PACKAGE, DistillationRecipe
from bertwright.compression.distillation.requirements import require_start_token_first
from bertwright.compression.distillation.retokenized_texts import TextRetokenizer
from bertwright.compression.distillation.stages import DistillationStage
from bertwright.compression.method import resource_names
from bertwright.compression.pruning.layers import prune_layers
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.interop.loading import load
from bertwright.models.model import DeviceBatch, Model
from bertwright.models.text_model import TextModel
from bertwright.testing.toy import toy_text_model
from bertwright.training.clock import Progress
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.pretraining_batches import PretrainingBatches
from small_recipe import small
from toy_recipes import shaken, toy

NUM_LOSSES = {"distil-mlm": (2, 2), "tiny-general": (2, 2), "relations": (1, 1)}
NUM_LOSSES |= {"mobile-progressive": (4, 1), "leaf": (1, 1)}
"""The number of losses of each recipe, at the start of a run and at its end."""
JOINT = {
    name for name in resource_names(RECIPES_PACKAGE) if DistillationRecipe.load(name).joint_training
}
"""Recipes of joint training, which have tests of their own."""
FROZEN = sorted(set(resource_names(RECIPES_PACKAGE)) - JOINT)
BERT = (
    "encoder.depth.layers=4",
    "encoder.dropout=0",
    "encoder.mixer.dropout=0",
    "encoder.initialisation={kind: width-aware}",
    "objectives.next-sentence=null",
)


def model_of(data: Dataset, *changes: str, **settings) -> TextModel:
    recipe = fit_recipe_to_data(small("bert", *BERT, *changes), data, has_teacher=True)
    return TextModel(Model.build(recipe, data.tokenizer.vocab_size), data.tokenizer, "float32")


def recipe_with_few_heads(name: str) -> DistillationRecipe:
    recipe = DistillationRecipe.load(name)
    if name != "relations":
        return recipe
    (stage,) = recipe.stages
    losses = tuple(term.model_copy(update={"heads": 2}) for term in stage.losses)
    return recipe.model_copy(update={"stages": (stage.model_copy(update={"losses": losses}),)})


def losses_at(
    fraction: float, student: TextModel, teacher: TextModel, name: str, data: Dataset
) -> dict[str, float]:
    """Return the losses of the first step at a fraction of the run."""
    distillation = recipe_with_few_heads(name).distillation(teacher)
    distillation_loss = distillation.build_loss(student.model, data)
    distillation_loss.init(0)
    recipe = student.model.recipe
    step, progress = PretrainingBatches(recipe, data)(Progress(0, 0.0)), Progress(0, fraction)
    losses = PretrainingLosses(recipe, student.model, distillation_loss=distillation_loss)
    means: dict[str, float] = {}
    counts = distillation_loss.prepare_step(step, progress).loss_counts
    for batch in step.micro_batches:
        for loss_name, loss in losses(batch, progress).items():
            if loss_name not in step.loss_counts:
                mean = loss.sum.item() / counts[loss_name]
                means[loss_name] = means.get(loss_name, 0.0) + mean
    return means


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("name", FROZEN)
def test_a_student_equal_to_its_teacher_has_no_loss(data: Dataset, name: str, end: int) -> None:
    teacher = model_of(data)
    equal = losses_at(end, teacher, teacher, name, data)
    assert len(equal) == NUM_LOSSES[name][end]
    assert max(map(abs, equal.values())) < 1e-5
    student = prune_layers(teacher, [0, 1])
    shaken(student.model, 0.2)
    other = losses_at(end, student, teacher, name, data)
    assert min(other.values()) > 1e-4
    student.model.recipe = student.model.recipe.model_copy(update={"micro_batch_tokens": 64})
    parts = losses_at(end, student, teacher, name, data)
    np.testing.assert_allclose(list(parts.values()), list(other.values()), rtol=1e-4)


@torch.no_grad()
def token_log_probabilities(
    model: Model, batch: DeviceBatch, positions: torch.Tensor
) -> torch.Tensor:
    """Return log probabilities at flat positions, at temperature 2."""
    states = model.encoder(batch.token_ids, batch.token_info).flatten(0, 1)
    return F.log_softmax(model.logits(states[positions]) / 2, -1)


@pytest.mark.parametrize("positions", ["masked", "all"])
def test_outputs_are_compared_at_the_positions_of_the_stage(data: Dataset, positions: str) -> None:
    teacher, recipe = model_of(data), DistillationRecipe.load("distil-mlm")
    stages = tuple(stage.model_copy(update={"positions": positions}) for stage in recipe.stages)
    student = prune_layers(teacher, [0, 1])
    shaken(student.model, 0.2)
    distillation = recipe.model_copy(update={"stages": stages}).distillation(teacher)
    distillation_loss = distillation.build_loss(student.model, data)
    recipe, progress = student.model.recipe, Progress(0, 0.0)
    step = distillation_loss.prepare_step(PretrainingBatches(recipe, data)(progress), progress)
    losses = PretrainingLosses(recipe, student.model, distillation_loss=distillation_loss)
    total, count = 0.0, 0
    for batch in map(DeviceBatch, step.micro_batches):
        compared = (batch.token_info.document_ids >= 0).flatten().nonzero().flatten()
        if positions == "masked":
            targets = batch.targets["masked"]
            compared = targets.positions
            if targets.weights is not None:
                compared = compared[targets.weights > 0]
        logs = (token_log_probabilities(m.model, batch, compared) for m in (student, teacher))
        total += 4 * F.kl_div(*logs, reduction="sum", log_target=True).item()
        count += len(compared)
    loss = sum(losses(batch, progress)["outputs"].sum.item() for batch in step.micro_batches)
    assert step.loss_counts["outputs"] == count
    assert loss == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("name", FROZEN)
def test_a_run_with_a_teacher_resumes_bit_for_bit(data: Dataset, tmp_path: Path, name: str) -> None:
    teacher = recipe_with_few_heads(name).distillation(model_of(data))
    narrow = (
        ("encoder.width=16", "encoder.depth.layers=2")
        if name == "tiny-general"
        else ("encoder.depth.layers=2",)
    )
    recipe = small("bert", *BERT, *narrow, "steps=6", "checkpoint_every=3")
    whole = pretrain(recipe, data, tmp_path / "whole", distillation=teacher, quiet=True)
    last = max((tmp_path / "whole" / "checkpoints").iterdir())
    torch.testing.assert_close(
        load(last).model.state_dict(), load(whole.folder).model.state_dict(), rtol=0, atol=0
    )
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop)
        pretrain(recipe, data, tmp_path / "parts", distillation=teacher, quiet=True)
    again = pretrain(
        recipe, data, tmp_path / "parts", distillation=teacher, quiet=True, resume=True
    )
    first, second = (load_file(p.folder / "model.safetensors") for p in (whole, again))
    assert not [key for key in first if "distillation_loss" in key]
    assert all(torch.equal(first[key], second[key]) for key in first)


class Stopped(Exception):
    """Raised after the first checkpoint."""


def stop(*_: object) -> None:
    raise Stopped


def test_a_teacher_may_have_more_rows_than_tokens(data: Dataset, tmp_path: Path) -> None:
    recipe = small("bert", *BERT, "steps=1")
    large = Model.build(fit_recipe_to_data(recipe, data), data.tokenizer.vocab_size + 7)
    teacher = TextModel(large, data.tokenizer, "float32")
    teacher.save(tmp_path / "large")
    distillation = DistillationRecipe.load("distil-mlm").distillation(teacher)
    pretrain(
        recipe,
        data,
        tmp_path / "out",
        distillation=distillation,
        start_from=tmp_path / "large",
        quiet=True,
    )


def test_a_run_resumes_with_its_teacher_only(data: Dataset, tmp_path: Path) -> None:
    recipe = small("bert", *BERT, "steps=2", "checkpoint_every=1")
    teacher = DistillationRecipe.load("distil-mlm").distillation(model_of(data))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop)
        pretrain(recipe, data, tmp_path / "out", distillation=teacher, quiet=True)
    alike = model_of(data)
    next(alike.model.encoder.blocks.parameters()).data += 1
    for other, message in [
        (DistillationRecipe.load("distil-mlm").distillation(alike), "was started with another"),
        (None, "was started with a teacher"),
        (
            DistillationRecipe.load("distil-mlm").distillation(model_of(data, "seed=4")),
            "was started with another",
        ),
    ]:
        with pytest.raises(UserError, match=message):
            pretrain(recipe, data, tmp_path / "out", distillation=other, quiet=True, resume=True)


def test_unsuitable_objectives_are_refused(data: Dataset, tmp_path: Path) -> None:
    teacher = DistillationRecipe.load("distil-mlm").distillation(model_of(data))
    for changes, message in [
        (("objectives.masked=null", "objectives.causal={}"), "need the objective masked"),
        (
            ("phases=[{fraction: 1, depth: 0.5}, {fraction: 1}]",),
            "does not support progressive stacking",
        ),
    ]:
        with pytest.raises(UserError, match=message):
            pretrain(small("bert", *BERT, *changes), data, tmp_path / "o", distillation=teacher)
    assert not (tmp_path / "o").exists()


def test_a_teacher_of_vectors_needs_no_objective(data: Dataset, tmp_path: Path) -> None:
    none = "objectives.masked=null"
    sentences = "assembly={kind: sentence-groups, sentences: 1, length: 32}"
    student = small("bert", *BERT, none, sentences, "phases=[{}]", "steps=2")
    distillation = DistillationRecipe.load("leaf").distillation(model_of(data, none))
    result = pretrain(student, data, tmp_path / "out", distillation=distillation, quiet=True)
    assert result.num_steps == 2
    with pytest.raises(UserError, match="need the objective masked"):
        other = DistillationRecipe.load("distil-mlm").distillation(model_of(data))
        pretrain(student, data, tmp_path / "other", distillation=other, quiet=True)
    with pytest.raises(UserError, match=r"has no objectives.*or name a --teacher"):
        pretrain(student, data, tmp_path / "alone", quiet=True)


def test_a_teacher_of_vectors_may_have_another_tokenizer(data: Dataset, tmp_path: Path) -> None:
    """The loss is the distance of the vectors of both models for the same texts."""
    sentences = "assembly={kind: sentence-groups, sentences: 1, length: 32}"
    changes = "objectives.masked=null", sentences, "phases=[{}]", "steps=2", "seed=3"
    student = model_of(data, *changes)
    recipe = student.model.recipe
    (batch,) = PretrainingBatches(recipe, data)(Progress(0, 0.0)).micro_batches
    assert batch.token_info.document_ids is not None
    texts = [
        data.tokenizer.decode(ids[documents >= 0].tolist())
        for ids, documents in zip(batch.token_ids, batch.token_info.document_ids, strict=True)
    ]
    teacher = toy_text_model(["a bird of the red house", *texts], kind="byte-bpe")
    assert teacher.tokenizer.hash != data.tokenizer.hash
    distillation = DistillationRecipe.load("leaf").distillation(teacher)
    loss = distillation.build_loss(student.model, data)
    num_tokens = sum(map(len, teacher.encode_ids(texts)))
    assert TextRetokenizer(data.tokenizer, teacher)(batch).num_tokens == num_tokens
    step = loss.prepare_step(PretrainingBatches(recipe, data)(Progress(0, 0.0)), Progress(0, 0.0))
    losses = PretrainingLosses(recipe, student.model, distillation_loss=loss)
    (measured,) = losses(step.micro_batches[0], Progress(0, 0.0)).values()
    vectors = [model.embed(texts, normalise=True) for model in (student, teacher)]
    expected = ((vectors[0] - vectors[1]) ** 2).sum(1).mean()
    assert measured.sum.item() / measured.count == pytest.approx(expected, rel=1e-4)
    result = pretrain(recipe, data, tmp_path / "out", distillation=distillation, quiet=True)
    assert result.num_steps == 2
    with pytest.raises(UserError, match=r"no objective may change.*objectives=\{masked: null\}"):
        distillation.build_loss(model_of(data).model, data)
    other = DistillationRecipe.load("distil-mlm").distillation(teacher)
    with pytest.raises(UserError, match="learn its text vectors alone"):
        other.build_loss(model_of(data).model, data)


def test_a_narrower_student_keeps_its_projection(data: Dataset, tmp_path: Path) -> None:
    none, width = "objectives.masked=null", "encoder.width=16"
    sentences = "assembly={kind: sentence-groups, sentences: 1, length: 32}"
    student = small("bert", *BERT, none, width, sentences, "phases=[{}]", "steps=2")
    teacher = model_of(data, none)
    distillation = DistillationRecipe.load("leaf").distillation(teacher)
    pretrain(student, data, tmp_path / "out", distillation=distillation, quiet=True)
    trained, before = (
        load(tmp_path / "out", "float32"),
        Model.build(
            distillation.fit_student(fit_recipe_to_data(student, data, has_teacher=True)),
            data.tokenizer.vocab_size,
        ),
    )
    assert trained.embed(["red bird"]).shape[1] == teacher.embed(["red bird"]).shape[1]
    assert before.vector_projection is not None
    assert trained.model.vector_projection is not None
    moved = trained.model.vector_projection.linear.weight - before.vector_projection.linear.weight
    assert float(moved.detach().abs().max()) > 1e-5
    stated = small(
        "bert", *BERT, none, width, sentences, "phases=[{}]", "vectors.projection.width=7"
    )
    with pytest.raises(UserError, match=r"7 dimensions .* vectors.projection.width=32"):
        pretrain(stated, data, tmp_path / "other", distillation=distillation, quiet=True)


def test_vectors_of_start_tokens_need_them_first() -> None:
    stages = [DistillationStage(losses=(VectorLossConfig(pooling="cls"),), objective_weight=0.0)]
    require_start_token_first(stages, toy("bert"), toy("modern"))
    with pytest.raises(UserError, match="the start token of xlnet is the last"):
        require_start_token_first(stages, toy("bert"), toy("xlnet"))
    means = [DistillationStage(losses=(VectorLossConfig(),), objective_weight=0.0)]
    require_start_token_first(means, toy("bert"), toy("xlnet"))
