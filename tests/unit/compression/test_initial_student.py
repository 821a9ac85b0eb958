"""Students of a recipe: drawn by a seed, with embeddings of their teacher."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.compress import compress
from bertwright.compression.distillation.losses import (
    DistillationInputs,
    DistillationTermConfig,
)
from bertwright.compression.distillation.transfer.transfer_sets import TransferSets
from bertwright.compression.initial_student import (
    StudentFromRecipe,
    require_unlabelled_used,
    student_factory,
)
from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning.layers import prune_layers
from bertwright.compression.task_loss import example_batches
from bertwright.compression.vocabulary.narrower_embeddings import project_embeddings
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.tokenization.words import split_words
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.loading import load
from bertwright.tasks.adapters.quantization.fake_quantize import FakeQuantize
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from full_suite import full_except
from small_tasks import TEXTS, classes, pairs, partners, tagged

CLASSES = table_task("colours", Columns())
QUICK = {
    "learning_rate": 3e-3,
    "compile": False,
    "batch_size": 8,
    "calibrate": False,
    "precision": "float32",
}
RECIPE = "extends: bilstm-student\nencoder: {width: 32, embeddings: {width: 24}}\n"
WORDPIECE_RECIPE = f"{RECIPE}text: {{tokenizer: {{kind: wordpiece, vocab_size: 100}}}}\n"


def recipe(tmp_path: Path, content: str = RECIPE) -> str:
    file = tmp_path / "recipe.yaml"
    file.write_text(content)
    return str(file)


def fine_tuned(model, task=CLASSES, examples=None) -> FineTunedModel:
    examples = examples or classes()
    return finetune(model, task, train=examples, dev=examples, **QUICK | {"epochs": 8}).model


def test_word_level_student_has_another_vocabulary(pretrained, tmp_path: Path) -> None:
    teacher = pretrained()
    tokenizer = StudentFromRecipe(recipe(tmp_path), teacher, TEXTS, "teacher").build(0).tokenizer
    vocabulary = {tokenizer.id_to_token(n) for n in range(tokenizer.vocab_size)}
    assert {w.lower() for text in TEXTS for w in split_words(text)} <= vocabulary
    path = recipe(tmp_path, WORDPIECE_RECIPE)
    student = StudentFromRecipe(path, teacher, TEXTS, "teacher").build(0)
    assert student.tokenizer is teacher.tokenizer


@pytest.mark.parametrize("content", [RECIPE, WORDPIECE_RECIPE])
def test_the_seed_draws_all_weights_but_the_teachers_embeddings(
    pretrained, tmp_path: Path, content: str
) -> None:
    teacher, path = pretrained(), recipe(tmp_path, content)
    models = {
        (init, seed): StudentFromRecipe(path, teacher, TEXTS, init).build(seed).model
        for init in ("teacher", "random")
        for seed in (0, 1)
    }
    for init in ("teacher", "random"):
        first, second = (models[init, seed] for seed in (0, 1))
        again = StudentFromRecipe(path, teacher, TEXTS, init).build(0).model
        for (name, a), b, c in zip(
            first.named_parameters(), second.parameters(), again.parameters(), strict=True
        ):
            assert torch.equal(a, c), name
            same = torch.equal(a, b) and bool(a.any())
            if "embeddings" not in name:
                assert not same, name
    random, projected = (models[init, 0].embedding_table for init in ("random", "teacher"))
    torch.testing.assert_close(random.square().mean(), projected.square().mean())
    # Another seed gives another scale, and the same directions.
    other = models["teacher", 1].embedding_table
    torch.testing.assert_close(projected / projected.norm(), other / other.norm())


@pytest.mark.parametrize("width", [8, 32, 40])
def test_projected_embeddings_are_the_best_approximation(pretrained, width: int) -> None:
    teacher = pretrained()
    table = teacher.model.embedding_table.detach().cpu()
    projected = project_embeddings(teacher, teacher.tokenizer, width)
    assert projected.shape == (len(table), width)
    left, values, right = torch.linalg.svd(table.double(), full_matrices=False)
    best = (left[:, :width] * values[:width]) @ right[:width]
    expected = (best @ best.T).float()
    torch.testing.assert_close(projected @ projected.T, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_words_have_the_mean_of_their_tokens_embeddings(pretrained, system: str) -> None:
    teacher, space = pretrained(system), " " if system == "roberta" else ""
    table = teacher.model.embedding_table.detach().cpu()
    texts = [*TEXTS, "redbird treehouse"]
    tokenizer = train_tokenizer(texts, WordLevelConfig(vocab_size=60, lowercase=True))
    ours, others = tokenizer.special_tokens, teacher.tokenizer.special_tokens
    special = {ours.pad: others.pad, ours.unknown: others.unknown, ours.mask: others.mask}
    special |= {ours.start: others.start, ours.end: others.end}
    token_ids = [
        [special[n]] if n in special else teacher.tokenizer.encode(space + tokenizer.id_to_token(n))
        for n in range(tokenizer.vocab_size)
    ]
    assert max(map(len, token_ids)) > 1
    vectors = torch.stack([table[ids].mean(0) for ids in token_ids])
    projected = project_embeddings(teacher, tokenizer, table.shape[1])
    torch.testing.assert_close(projected @ projected.T, vectors @ vectors.T, rtol=1e-3, atol=1e-4)


def test_a_student_of_a_recipe_learns_from_its_teacher(pretrained, tmp_path: Path) -> None:
    teacher = fine_tuned(pretrained())
    method = tmp_path / "soft.yaml"
    method.write_text(
        "description: a\nsource: b\nstages:\n"
        "  - objective_weight: 0\n"
        "    losses: [{kind: outputs, distance: squared}]\n"
        "    settings: {epochs: 16}\n"
    )
    data = TaskData(teacher.task, train=classes(), dev=classes())
    student = recipe(tmp_path)
    arguments = {"student": student, "seeds": 2, "settings": {**QUICK, "dropout": 0.0}}
    result = compress(teacher, str(method), data, output=tmp_path / "small", **arguments)
    assert result.teacher_score > 0.9
    assert max(run.best.score for run in result.runs) > 0.9
    small = load(tmp_path / "small")
    assert isinstance(small, FineTunedModel)
    assert small.tokenizer.kind == "words"
    with pytest.raises(UserError, match="leave --layers out"):
        compress(teacher, str(method), data, layers=1, **arguments)
    with pytest.raises(UserError, match="there is no recipe 'bilstm-studend-base': did you mean"):
        compress(teacher, str(method), data, student="bilstm-studend-base")


def test_a_tagger_can_be_a_student_of_a_recipe(pretrained, tmp_path: Path) -> None:
    teacher = fine_tuned(pretrained(), tagging_task("colours"), tagged())
    data = TaskData(teacher.task, train=tagged(), dev=tagged())
    arguments = {"student": recipe(tmp_path), "settings": {**QUICK, "epochs": 1}}
    result = compress(teacher, "output-distillation", data, **arguments)
    assert result.best.model.tokenizer.kind == "words"


def test_padding_and_neighbours_change_no_output(pretrained, tmp_path: Path) -> None:
    student = StudentFromRecipe(recipe(tmp_path), pretrained(), TEXTS, "teacher").build(0)
    tuned = finetune(student, CLASSES, train=classes(), dev=classes(), epochs=1, **QUICK).model
    length = tuned.example_encoder.max_length
    model = FineTunedModel(tuned.task_model, tuned.tokenizer, tuned.task, length, "float32")
    sequences = model.output_decoder.encode(model.example_encoder, [*classes(), *classes()[:3]])
    sequences[0].token_ids[3:-1] = []
    outputs = model.head_outputs(sequences)
    for sequence, output in zip(sequences, outputs, strict=True):
        (single,) = model.head_outputs([sequence])
        torch.testing.assert_close(torch.tensor(single), torch.tensor(output), rtol=1e-5, atol=1e-6)


def test_blocks_of_a_quantized_teacher_can_be_replaced(pretrained, tmp_path: Path) -> None:
    embeddings = "encoder.embeddings={kind: factorised, width: 16}"
    data, adaptation = classes(), {"kind": "quantised", "activations": {}}
    settings = QUICK | {"epochs": 1, "adaptation": adaptation}
    model = pretrained("electra", "encoder.depth.layers=2", embeddings)
    teacher = finetune(model, CLASSES, train=data, dev=data, **settings).model
    method = CompressionMethod.load("theseus-linear")
    texts = TransferSets(teacher, data, unlabelled=None, folder=tmp_path)
    student = student_factory(teacher, None, None, method, texts)(0)
    assert not any(isinstance(m, FakeQuantize) for m in student.model.encoder.modules())
    weights = student.model.encoder.state_dict()
    kept = [name for name in weights if "blocks.1." not in name]
    taught = teacher.task_model.encoder.state_dict()
    assert all(torch.equal(weights[name], taught[name]) for name in kept)


def test_a_student_without_the_teachers_mask_is_refused(pretrained, tmp_path: Path) -> None:
    teacher = fine_tuned(pretrained("roberta"))
    data = TaskData(teacher.task, train=classes(), dev=classes())
    with pytest.raises(UserError, match="masks words as <mask>, which is not the mask token"):
        compress(teacher, "bilstm-soft", data, student=recipe(tmp_path), settings=QUICK)
    with pytest.raises(UserError, match="masks words as <mask>, which is not the mask token"):
        compress(teacher, "bilstm-soft", data, student=pretrained(), settings=QUICK)


def test_texts_are_used_by_a_stage_or_by_a_vocabulary() -> None:
    for method, student in [
        ("bilstm-soft", "bilstm-student"),
        ("layer-drop", "bilstm-student"),
        ("pre-trained-distillation", "bert-tiny"),
        ("pre-trained-distillation", None),
    ]:
        require_unlabelled_used(CompressionMethod.load(method), student)
    for student in ("bert-tiny", None):
        with pytest.raises(UserError, match="does not use the texts of --unlabelled"):
            require_unlabelled_used(CompressionMethod.load("layer-drop"), student)


def test_a_siamese_student_may_have_a_teacher_of_pairs(pretrained, tmp_path: Path) -> None:
    examples = pairs()
    teacher = fine_tuned(pretrained(), examples=examples)
    data = TaskData(teacher.task, train=examples, dev=examples)
    head = {"kind": "dense", "activation": "relu", "pooling": "siamese"}
    settings = {**QUICK, "epochs": 1, "head": head}
    small = compress(
        teacher, "output-distillation", data, student=recipe(tmp_path), settings=settings
    ).best.model
    assert small.example_encoder.is_siamese
    assert not teacher.example_encoder.is_siamese
    small.save(tmp_path / "small")
    loaded = load_fine_tuned_model(tmp_path / "small")
    assert loaded.predict(examples) == small.predict(examples)


@given(st.lists(st.floats(-50, 50, width=32), min_size=6, max_size=6))
def test_the_squared_distance_of_equal_logits_is_0(logits: list[float]) -> None:
    outputs = torch.tensor(logits).view(2, 3).requires_grad_()
    config = DistillationTermConfig.parse({"kind": "outputs", "distance": "squared", "mean": True})
    encoder: object = None
    term = config.build(encoder, encoder)  # type: ignore[arg-type]
    same = outputs, outputs.detach().clone(), None, None
    inputs = DistillationInputs(*same, {}, {}, torch.ones(2, 1).bool(), 0.0)
    loss = term(inputs)
    assert loss.item() == 0.0
    loss.backward()
    assert not outputs.grad.any()
    different = replace(inputs, teacher_outputs=outputs.detach() + 2.0)
    assert term(different).item() == pytest.approx(2 * 4.0, rel=1e-3)


def test_students_of_token_weights_keep_their_lm_head(pretrained) -> None:
    task, examples = Task("colours", OutputType.parse("sparse")), partners()
    teacher = fine_tuned(pretrained(), task, examples)
    assert "next-sentence" in pretrained().model.heads
    pruned = prune_layers(teacher, [0])
    assert pruned.has_lm_head
    small = finetune(pruned, task, train=examples, dev=examples, **QUICK, epochs=0).model
    again = prune_layers(small, [0])
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, small.model.state_dict()[name])


@pytest.mark.parametrize(
    ("system", "kind"), [("bert", "cloze"), ("t5", "class-in-words")], ids=["bert", "t5"]
)
@pytest.mark.parametrize(
    "name", full_except(["layer-drop", "layer-drop-needed", "albert-share"], ["layer-drop"])
)
def test_layers_without_the_needed_lm_head_are_no_student(
    pretrained, system: str, kind: str, name: str
) -> None:
    words = {"old": "old", "new": "new"}
    task = Task("colours", OutputType.parse({"kind": kind, "words": words}))
    teacher = fine_tuned(pretrained(system), task)
    data = TaskData(task, train=classes(), dev=classes())
    with pytest.raises(UserError, match="needs a language-model head"):
        compress(teacher, name, data, settings=QUICK)


def test_importance_for_generated_text_is_refused(pretrained) -> None:
    words = {"old": "old", "new": "new"}
    task = Task("colours", OutputType.parse({"kind": "class-in-words", "words": words}))
    teacher = fine_tuned(pretrained("t5"), task)
    with pytest.raises(UserError, match="generates text, and the loss of its examples"):
        example_batches(teacher, classes(), 8)
