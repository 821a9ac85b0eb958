"""Joint training with a smaller vocabulary: what teacher and student read, and the losses."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertwright.batches.batch import Batch
from bertwright.batches.token_info import SequenceBatch
from bertwright.compression.distillation.dual_vocabulary_model import DualEmbedding
from bertwright.compression.distillation.joint_vocabulary import (
    PROJECTION_LOSS,
    TEACHER_LOSS,
    unmask,
)
from bertwright.compression.distillation.recipe import RECIPES_PACKAGE, DistillationRecipe
from bertwright.compression.distillation.shared_projections import (
    NamedVariables,
    SharedProjections,
    named_variables,
)
from bertwright.compression.method import resource_names
from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.encoder.encoder import Encoder
from bertwright.interop.loading import load
from bertwright.models.model import DeviceBatch, Model
from bertwright.models.text_model import TextModel
from bertwright.modules.initialisation import initialise
from bertwright.objectives.model_output import Loss
from bertwright.training.clock import Progress
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.pretraining_batches import PretrainingBatches
from small_recipe import small
from toy_recipes import shaken
from toy_stories import stories

JOINT_RECIPES = [
    name for name in resource_names(RECIPES_PACKAGE) if DistillationRecipe.load(name).joint_training
]
BERT = (
    "encoder.dropout=0",
    "encoder.mixer.dropout=0",
    "encoder.initialisation={kind: width-aware}",
    "objectives.next-sentence=null",
    "objectives.masked.corruption={mask: 1, random: 0, keep: 0}",
    "phases=[{}]",
)
NARROW = ("encoder.width=16", "encoder.mixer.head_width=8")
TEXTS = stories(60)


@pytest.fixture(scope="module")
def large() -> Tokenizer:
    return train_tokenizer(TEXTS, WordPieceConfig(vocab_size=120))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The text in a vocabulary half as large."""
    return prepared(
        tmp_path_factory.mktemp("few"), train_tokenizer(TEXTS, WordPieceConfig(vocab_size=60))
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, large: Tokenizer) -> Dataset:
    """The text in the teacher's vocabulary."""
    return prepared(tmp_path_factory.mktemp("many"), large)


def prepared(folder: Path, tokenizer: Tokenizer) -> Dataset:
    (folder / "text.txt").write_text("\n\n".join(TEXTS))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)


@pytest.fixture(scope="module")
def teacher(many: Dataset, large: Tokenizer) -> TextModel:
    recipe = fit_recipe_to_data(small("bert", *BERT), many)
    return TextModel(shaken(Model.build(recipe, large.vocab_size), 0.05), large, "float32")


def joint_recipe(name: str = "dual-vocabulary", **settings: object) -> DistillationRecipe:
    recipe = DistillationRecipe.load(name)
    assert recipe.joint_training is not None
    joint_training = recipe.joint_training.model_copy(update=settings)
    return recipe.model_copy(update={"joint_training": joint_training})


class Step:
    """The first step of a student."""

    def __init__(
        self,
        data: Dataset,
        teacher: TextModel,
        distillation: DistillationRecipe,
        *changes: str,
        progress: Progress = Progress(3, 0.5),
    ) -> None:
        recipe = fit_recipe_to_data(small("bert", *BERT, *changes), data)
        self.student = Model.build(recipe, data.tokenizer.vocab_size)
        self.loss = distillation.distillation(teacher).build_loss(self.student, data)
        self.student.distillation_loss = self.loss
        self.loss.init(0)
        self.progress = progress
        self.plain = PretrainingBatches(recipe, data)(progress)
        self.step = self.loss.prepare_step(self.plain, progress)
        self.recipe = recipe

    @property
    def teacher_batches(self) -> list[Batch]:
        batches = [batch.teacher_batch for batch in self.step.micro_batches]
        assert all(batch is not None for batch in batches)
        return [batch for batch in batches if batch is not None]

    def losses(self) -> Mapping[str, Loss]:
        (batch,) = self.step.micro_batches
        return PretrainingLosses(self.recipe, self.student, distillation_loss=self.loss)(
            batch, self.progress
        )


@pytest.mark.processor
def test_without_mixed_words_the_teacher_has_its_plain_loss(
    many: Dataset, teacher: TextModel
) -> None:
    step = Step(many, teacher, joint_recipe(mixed_word_fraction=0.0))
    dual, size = step.loss.teacher, teacher.tokenizer.vocab_size
    dual.student_output.load_state_dict(dual.teacher_output.state_dict())
    dual.embeddings.student_embedding.weight.data.copy_(dual.embeddings.teacher_embedding.weight)
    (mixed,) = step.teacher_batches
    # A sequence may begin with a part of a word, which is not retokenized.
    assert (unmask(mixed, "masked").token_ids >= size).mean() < 0.05
    same = renumbered(mixed, lambda token_ids: token_ids % size)
    (plain,) = step.plain.micro_batches
    text = unmask(plain, "masked").token_ids
    assert np.array_equal(unmask(same, "masked").token_ids, text)
    assert_loss_of(step, step.losses()[TEACHER_LOSS], teacher.model, same)


@pytest.mark.processor
@pytest.mark.parametrize("vocabulary", ["few", "many"])
def test_with_all_words_mixed_the_teacher_reads_the_students_tokens(
    vocabulary: str, teacher: TextModel, request: pytest.FixtureRequest
) -> None:
    data: Dataset = request.getfixturevalue(vocabulary)
    step = Step(data, teacher, joint_recipe(mixed_word_fraction=1.0))
    dual, size = step.loss.teacher, teacher.tokenizer.vocab_size
    teacher_ids = asdict(teacher.tokenizer.special_tokens)
    student_ids = asdict(data.tokenizer.special_tokens)
    specials = {teacher_ids[role]: token_id for role, token_id in student_ids.items()}
    student_table = dual.embeddings.student_embedding.weight
    for teacher_id, student_id in specials.items():
        student_table.data[student_id] = dual.embeddings.teacher_embedding.weight[teacher_id]
    (mixed,), (plain,) = step.teacher_batches, step.plain.micro_batches
    same = renumbered(mixed, np.vectorize(lambda token: specials.get(token, token - size)))
    text = unmask(plain, "masked").token_ids
    assert np.array_equal(unmask(same, "masked").token_ids, text)
    model = Model(teacher.model.recipe, data.tokenizer.vocab_size)
    output = {f"output.{n}": t for n, t in dual.student_output.state_dict().items()}
    table = {"encoder.embeddings.tokens.weight": student_table}
    model.load_state_dict(teacher.model.state_dict() | output | table)
    assert_loss_of(step, step.losses()[TEACHER_LOSS], model, same)


def renumbered(batch: Batch, convert: Callable[[Any], Any]) -> Batch:
    """Return a batch with converted token ids."""
    targets = batch.targets["masked"]
    targets = replace(targets, labels=convert(targets.labels))
    return replace(batch, token_ids=convert(batch.token_ids), targets={"masked": targets})


def assert_loss_of(step: Step, loss: Loss, model: Model, batch: Batch) -> None:
    expected = model.losses(DeviceBatch(batch), step.recipe.objectives)["masked"]
    torch.testing.assert_close(loss.sum, expected.sum, rtol=1e-5, atol=1e-5)
    assert (loss.count, float(loss.num_correct)) == (expected.count, float(expected.num_correct))


def test_mixed_sequences_are_the_same_text(few: Dataset, teacher: TextModel) -> None:
    step = Step(few, teacher, joint_recipe())
    (mixed_batch,), (plain_batch,) = step.teacher_batches, step.plain.micro_batches
    size = teacher.tokenizer.vocab_size
    mixed, plain = unmask(mixed_batch, "masked"), unmask(plain_batch, "masked")
    num_words = [0, 0]
    for index in range(len(mixed.token_ids)):
        token_ids = mixed.token_ids[index][~mixed.is_special[index]].tolist()
        mixed_words, plain_words = [], []
        for word in np.split(token_ids, word_boundaries(mixed, index)):
            is_second = int(word[0] >= size)
            tokenizer = few.tokenizer if is_second else teacher.tokenizer
            mixed_words.append(tokenizer.decode([int(t) - size * is_second for t in word]))
            num_words[is_second] += 1
        token_ids = plain.token_ids[index][~plain.is_special[index]]
        for word in np.split(token_ids, word_boundaries(plain, index)):
            plain_words.append(few.tokenizer.decode(word.tolist()))
        assert mixed_words == plain_words
    assert min(num_words) > 0.3 * sum(num_words)


def test_rows_without_a_token_are_not_drawn(few: Dataset, teacher: TextModel) -> None:
    size = teacher.tokenizer.vocab_size
    recipe = fit_recipe_to_data(small("bert", *BERT), few)
    padded = TextModel(Model.build(recipe, size + 500), teacher.tokenizer, "float32")
    corruption = "objectives.masked.corruption={mask: 0, random: 1, keep: 0}"
    (batch,) = Step(few, padded, joint_recipe(), corruption).teacher_batches
    is_changed = unmask(batch, "masked").token_ids != batch.token_ids
    drawn = batch.token_ids[is_changed]
    assert len(drawn) > 20
    assert not ((drawn >= size) & (drawn < size + 500)).any()


def test_masked_tokens_are_restored(few: Dataset, teacher: TextModel) -> None:
    (batch,) = Step(few, teacher, joint_recipe()).plain.micro_batches
    targets, text = batch.targets["masked"], unmask(batch, "masked")
    is_changed = text.token_ids != batch.token_ids
    assert is_changed.sum() > 0.5 * len(targets.labels)
    assert np.isin(np.flatnonzero(is_changed), targets.positions).all()
    assert np.array_equal(text.token_ids.ravel()[targets.positions], targets.labels)
    # Tokens outside of words are special, and none are in text without words.
    assert np.array_equal(text.is_special, batch.token_info.word_ids < 0)
    assert 0 < text.is_special.sum() < text.is_special.size
    without = replace(batch, token_info=replace(batch.token_info, word_ids=None))
    assert not unmask(without, "masked").is_special.any()


def word_boundaries(batch: SequenceBatch, index: int) -> np.ndarray:
    word_ids = batch.token_info.word_ids[index][~batch.is_special[index]]
    return np.flatnonzero(word_ids[1:] != word_ids[:-1]) + 1


def test_micro_batches_are_mixed_as_the_whole(few: Dataset, teacher: TextModel) -> None:
    whole = Step(few, teacher, joint_recipe())
    parts = Step(few, teacher, joint_recipe(), "micro_batch_tokens=64")
    assert len(parts.teacher_batches) > 1
    (batch,) = whole.teacher_batches
    token_ids = np.concatenate([part.token_ids for part in parts.teacher_batches])
    assert np.array_equal(token_ids, batch.token_ids)
    assert parts.step.loss_counts[TEACHER_LOSS] == whole.step.loss_counts[TEACHER_LOSS]
    assert parts.step.loss_counts[PROJECTION_LOSS] == len(parts.teacher_batches)
    later = Step(few, teacher, joint_recipe(), progress=Progress(4, 0.6, num_sequences=8))
    assert not np.array_equal(later.teacher_batches[0].token_ids, batch.token_ids)


def test_losses_of_micro_batches_add_up_to_the_counts_of_the_step(
    few: Dataset, teacher: TextModel
) -> None:
    """The distance of the parameters is the same in every micro-batch, and so is its mean."""
    parts = Step(few, teacher, joint_recipe(), *NARROW, "micro_batch_tokens=64")
    compute = PretrainingLosses(parts.recipe, parts.student, distillation_loss=parts.loss)
    losses = [compute(batch, parts.progress) for batch in parts.step.micro_batches]
    assert len(losses) > 1
    for name in (TEACHER_LOSS, PROJECTION_LOSS):
        assert sum(loss[name].count for loss in losses) == parts.step.loss_counts[name]
    mean = sum(loss[PROJECTION_LOSS].sum for loss in losses) / len(losses)
    assert parts.loss.projections is not None
    torch.testing.assert_close(mean, parts.loss.projections())


def test_special_tokens_inside_of_words_are_not_predicted(few: Dataset, teacher: TextModel) -> None:
    """A text may contain the name of a special token."""
    step = Step(few, teacher, joint_recipe())
    (batch,) = step.plain.micro_batches
    text, end = unmask(batch, "masked"), few.tokenizer.special_tokens.end
    is_end = ~text.is_special & (text.token_info.word_ids % 2 == 0)
    targets = batch.targets["masked"]
    token_ids = np.where(is_end, end, batch.token_ids)
    labels = np.where(is_end.ravel()[targets.positions], end, targets.labels)
    changed = replace(
        batch, token_ids=token_ids, targets={"masked": replace(targets, labels=labels)}
    )
    prepared_step = step.loss.prepare_step(
        replace(step.plain, micro_batches=[changed]), step.progress
    )
    mixed = prepared_step.micro_batches[0].teacher_batch
    assert mixed is not None
    targets, end = mixed.targets["masked"], end + teacher.tokenizer.vocab_size
    predicted = targets.labels[targets.weights > 0]
    assert end in unmask(mixed, "masked").token_ids
    assert len(predicted) > 10
    assert end not in predicted


@pytest.mark.parametrize("embeddings", ["separate", "student"])
def test_the_parameters_of_both_models_include_a_separate_table(
    few: Dataset, teacher: TextModel, embeddings: str
) -> None:
    recipe = joint_recipe(embeddings=embeddings)
    step = Step(few, teacher, recipe, *NARROW)
    assert step.loss.projections is not None
    step.loss.projections().backward()
    is_separate = embeddings == "separate"
    assert (step.student.embedding_table.grad is not None) == is_separate
    if is_separate:
        table = step.loss.teacher.embeddings.student_embedding.weight
        assert table.grad is not None
        assert table.grad.any()


@pytest.mark.parametrize("name", JOINT_RECIPES)
@pytest.mark.processor
def test_recipes_train_their_parameters(few: Dataset, teacher: TextModel, name: str) -> None:
    step = Step(few, teacher, joint_recipe(name), *NARROW)
    losses, weights = step.losses(), step.loss.loss_weights(step.progress)
    assert set(weights) <= set(losses)
    weights["masked"] = step.loss.objective_scale(step.progress)
    sum(w * losses[n].sum / step.step.loss_counts[n] for n, w in weights.items()).backward()
    for parameter_name, parameter in step.student.named_parameters():
        is_trained = parameter.grad is not None and bool(parameter.grad.any())
        if name == "mixed-vocabulary" and not parameter_name.startswith("distillation_loss."):
            assert is_trained == parameter_name.endswith("tokens.weight"), parameter_name
        else:
            assert is_trained, parameter_name


@pytest.mark.parametrize("name", JOINT_RECIPES)
def test_a_run_resumes_bit_for_bit_and_saves_the_student_only(
    few: Dataset, teacher: TextModel, tmp_path: Path, name: str
) -> None:
    recipe = small("bert", *BERT, *NARROW, "steps=4", "checkpoint_every=2")
    distillation = DistillationRecipe.load(name).distillation(teacher)
    run = {"distillation": distillation, "quiet": True}
    whole = pretrain(recipe, few, tmp_path / "whole", **run)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop)
        pretrain(recipe, few, tmp_path / "parts", **run)
    resumed = pretrain(recipe, few, tmp_path / "parts", **run, resume=True)
    first, second = (load_file(p.folder / "model.safetensors") for p in (whole, resumed))
    assert all(torch.equal(first[key], second[key]) for key in first)
    student = load(whole.folder)
    assert student.tokenizer.hash == few.tokenizer.hash
    assert dict(student.model.state_dict()).keys() == first.keys()
    assert len(student.model.embedding_table) == few.tokenizer.vocab_size
    assert not [key for key in first if "distillation_loss" in key]
    mask = student.tokenizer.id_to_token(student.tokenizer.special_tokens.mask)
    assert student.fill_mask(f"the {mask} river")
    # The second stage is plain training.
    plain = small("bert", *BERT, *NARROW, "steps=1")
    pretrain(plain, few, tmp_path / "plain", start_from=whole.folder, quiet=True)


class Stopped(Exception):
    """Raised after the first checkpoint."""


def stop(*_: object) -> None:
    raise Stopped


@pytest.mark.processor
def test_a_projected_table_is_the_students(few: Dataset, teacher: TextModel) -> None:
    step = Step(few, teacher, joint_recipe("mixed-vocabulary"), *NARROW)
    embeddings = step.loss.teacher.embeddings
    assert isinstance(embeddings, DualEmbedding)
    token_ids = torch.tensor([[1, teacher.tokenizer.vocab_size + 3]])
    vectors = embeddings(token_ids)[0]
    assert torch.equal(vectors[0], teacher.model.embedding_table[1])
    projected = embeddings.projection(step.student.embedding_table[3])
    torch.testing.assert_close(vectors[1], projected)
    assert embeddings.teacher_embedding.weight is next(embeddings.parameters())


def variables(width: int, seed: int) -> NamedVariables:
    config = small("bert", *BERT, f"encoder.width={width}", "encoder.mixer.head_width=8").encoder
    encoder = Encoder(config, 30)
    initialise(encoder, config.initialisation, seed)
    return named_variables(encoder=encoder)


def test_equal_variables_have_no_distance_and_no_projection() -> None:
    same, other = variables(32, 0), variables(32, 1)
    projections = SharedProjections(same, same)
    assert list(projections.parameters()) == []
    assert projections().item() == 0.0
    for name, (variable, _) in other.items():
        variable.data.copy_(same[name][0] + 1.0)
    assert SharedProjections(other, same)().item() == pytest.approx(2.0, rel=1e-5)


def test_all_layers_share_their_projections() -> None:
    narrow, wide = variables(16, 0), variables(32, 1)
    projections = SharedProjections(narrow, wide)
    projections.init(0)
    shapes = {name: tuple(p.shape) for name, p in projections.named_parameters()}
    assert shapes == {
        "rows.16-of-32": (16, 32),
        "rows.64-of-128": (64, 128),
        "columns.16-of-32": (16, 32),
        "columns.64-of-128": (64, 128),
    }
    # Projected back and forth, a vector keeps its length on average.
    for matrix in projections.parameters():
        lengths = (matrix @ matrix.T).diagonal()
        assert lengths.mean().item() == pytest.approx(1.0, rel=0.25)
    projections().backward()
    assert all(p.grad.any() for p in projections.parameters())


def test_rows_and_columns_have_projections_of_their_own() -> None:
    small, large = torch.randn(4, 6), torch.randn(8, 10)
    projections = SharedProjections({"matrix": (small, 1)}, {"matrix": (large, 1)})
    projections.init(0)
    rows, columns = projections.rows["4-of-8"], projections.columns["6-of-10"]
    assert len(list(projections.parameters())) == 2
    down = rows @ large @ columns.T - small
    up = rows.T @ small @ columns - large
    torch.testing.assert_close(projections(), down.square().mean() + up.square().mean())


def test_orthogonal_projections_have_no_distance() -> None:
    """For t = U' s V with orthonormal rows of U and V, s = U t V'."""
    narrow, wide = variables(16, 0), variables(32, 1)
    projections = SharedProjections(narrow, wide)
    projections.init(0)
    for matrix in projections.parameters():
        matrix.data = torch.linalg.qr(matrix.data.T).Q.T.contiguous()
    before = projections().item()
    matrices = dict(projections.named_parameters())
    for name, (target, num_parts) in wide.items():
        source = narrow[name][0].detach()
        source = source.view(num_parts, len(source) // num_parts, -1)
        rows = matrices.get(f"rows.{source.shape[1]}-of-{len(target) // num_parts}")
        columns = matrices.get(f"columns.{source.shape[2]}-of-{target[0].numel()}")
        projected = source if rows is None else rows.T @ source
        projected = projected if columns is None else projected @ columns
        target.data.copy_(projected.reshape(target.shape))
    assert projections().item() < 1e-12 < before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("encoder.depth.layers=1",), "on one side only"),
        (("objectives={word-order: {}}",), "changes it"),
        (("assembly.length=1024", "encoder.positions.size=1024"), "reads sequences of at most 512"),
        (
            ("objectives.next-sentence={}", "phases=[{}, {objectives: {next-sentence: {}}}]"),
            "in every step: leave out objectives of phases, and other objectives with a fraction",
        ),
    ],
)
def test_unsuitable_students_are_refused(
    few: Dataset, teacher: TextModel, changes: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Step(few, teacher, joint_recipe(), *changes)


def test_a_recipe_has_stages_or_joint_training() -> None:
    for settings in (
        {},
        {"joint_training": {}, "copy_non_block_weights": True},
        {"stages": [{"losses": ["outputs"]}], "joint_training": {}},
    ):
        with pytest.raises(ValueError, match="either stages"):
            DistillationRecipe.model_validate({"description": "", "source": "", **settings})
