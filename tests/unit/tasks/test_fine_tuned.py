"""Fine-tuned models predict the same in any batch, and after saving."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.formats.examples import Example, TaggedSentence
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.default_head import default_head
from bertwright.tasks.heads.head import init_head
from bertwright.tasks.outputs import ClassificationOutput, OutputType, Prediction
from bertwright.tasks.task import Task, task_as_dict
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel
from small_tasks import attached, classes, numbers, pairs, tagged
from toy_recipes import every_encoder

KINDS = {
    "class": (table_task("kinds", Columns()), classes()),
    "pair": (table_task("kinds", Columns("a", "b")), pairs()),
    "number": (table_task("kinds", Columns(), "number"), numbers()),
    "tags": (tagging_task("kinds"), tagged()),
    "head": (Task("kinds", OutputType.parse("head")), attached()),
}

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def solver(pretrained):
    def make(system: str, task: Task, **settings) -> FineTunedModel:
        source = pretrained(system)
        recipe = source.model.recipe
        head_config = default_head(recipe, task.output_type)
        task_model = TaskModel(
            recipe, source.tokenizer.vocab_size, HeadSpec(head_config, num_outputs(task))
        )
        task_model.encoder.load_state_dict(source.model.encoder.state_dict())
        init_head(task_model.head, source.model, seed=5)
        return FineTunedModel(
            task_model, source.tokenizer, task, **{"precision": "float32", **settings}
        )

    return make


def outputs(predictions: list[Prediction]) -> torch.Tensor:
    """Return all predictions as numbers, one row per example."""
    return torch.tensor(
        [
            list(p.probabilities.values())
            if isinstance(p.probabilities, dict)
            else list(p.probabilities or [p.value])
            for p in predictions
        ]
    )


@every_encoder
@every_kind
def test_batch_composition_changes_nothing(solver, system: str, kind: str) -> None:
    task, examples = KINDS[kind]
    model = solver(system, task.with_labels_from(examples))
    together = model.predict(examples)
    backward = model.predict(examples[::-1])[::-1]
    assert torch.allclose(outputs(together), outputs(backward), atol=1e-5)
    alone = [model.predict([example])[0] for example in examples[::4]]
    assert torch.allclose(outputs(together[::4]), outputs(alone), atol=1e-5)


@every_kind
def test_saving_and_loading_change_nothing(solver, kind: str, tmp_path: Path) -> None:
    task, examples = KINDS[kind]
    model = solver("modern", task.with_labels_from(examples), max_length=20)
    model.save(tmp_path / "model")
    again = load_fine_tuned_model(tmp_path / "model", precision="float32")
    assert again.predict(examples) == model.predict(examples)
    assert again.task.labels == model.task.labels
    assert again.example_encoder.max_length == 20


def test_bf16_predictions_are_close_to_float32(solver) -> None:
    task, examples = KINDS["class"]
    model = solver("modern", task.with_labels_from(examples))
    fast = FineTunedModel(model.task_model, model.tokenizer, model.task, precision="bf16")
    assert torch.allclose(
        outputs(model.predict(examples)), outputs(fast.predict(examples)), atol=0.02
    )


def test_plain_texts_pairs_and_sentences(solver) -> None:
    texts = solver("bert", KINDS["class"][0].with_labels_from(classes()))
    assert texts.predict(["The red bird"]) == texts.predict([Example("The red bird")])
    assert texts.predict([("a", "b")]) == texts.predict([Example("a", "b")])
    tags = solver("bert", KINDS["tags"][0].with_labels_from(tagged()))
    assert tags.predict(["The red  bird"]) == tags.predict([TaggedSentence(("The", "red", "bird"))])


def test_a_string_is_one_text_and_inputs_may_be_mixed(solver) -> None:
    model = solver("bert", KINDS["class"][0].with_labels_from(classes()))
    (expected,) = model.predict([Example("The red bird")])
    assert model.predict("The red bird") == [expected]
    mixed = model.predict([Example("The red bird"), "The red bird", ("a", "b")])
    assert [prediction.value for prediction in mixed[:2]] == [expected.value] * 2
    assert len(mixed) == 3


def test_every_word_of_a_long_sentence_has_a_tag(solver) -> None:
    model = solver("bert", KINDS["tags"][0].with_labels_from(tagged()), max_length=10)
    (prediction,) = model.predict([TaggedSentence(("red", "bird") * 20)])
    assert len(prediction.value) == len(prediction.probabilities) == 40
    assert model.predict([TaggedSentence(())]) == [Prediction((), ())]


def test_fine_tuned_model_embeds_but_has_no_lm_head(solver) -> None:
    model = solver("bert", KINDS["class"][0].with_labels_from(classes()))
    assert model.embed(["The red bird"]).shape == (1, 32)
    with pytest.raises(UserError, match="needs a model with"):
        model.fill_mask("The [MASK] bird")


def test_a_damaged_folder_is_named(solver, tmp_path: Path) -> None:
    solver("bert", KINDS["class"][0].with_labels_from(classes())).save(tmp_path)
    content = json.loads((tmp_path / "task.json").read_text())
    del content["task"]["output_type"]
    (tmp_path / "task.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"task\.json is damaged .*: task\.output_type: is missing"):
        load_fine_tuned_model(tmp_path)
    with pytest.raises(UserError, match="is not a fine-tuned model"):
        load_fine_tuned_model(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "task",
    [
        find_task("cola"),
        find_task("restoration"),
        table_task("task", Columns("a", "b", "c", ("a", "b", "c")), labels=("x", "y")),
        table_task("task", Columns("a"), "number"),
        tagging_task("task", "xpos"),
    ],
    ids=lambda task: f"{task.name}-{task.output_type.kind_name()}",
)
def test_task_round_trips_through_json(task: Task) -> None:
    again = TypeAdapter(Task).validate_python(json.loads(json.dumps(task_as_dict(task))))
    assert again == task


def test_in_memory_task_cannot_read_files() -> None:
    task = TypeAdapter(Task).validate_python(task_as_dict(Task("task", ClassificationOutput())))
    with pytest.raises(UserError, match="without a file format: pass its examples in Python"):
        task.read_examples(Path("file"))
