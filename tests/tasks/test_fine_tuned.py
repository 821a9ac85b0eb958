"""A fine-tuned model answers the same, whatever stands beside a text, and after saving."""

import json
from pathlib import Path

import pytest
import torch

from bertwright.errors import UserError
from bertwright.tasks.answers import ClassAnswer, Prediction
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned, load_fine_tuned, num_outputs
from bertwright.tasks.fitting_heads import default_head
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import begin
from bertwright.tasks.task import StoredTask, Task, described
from bertwright.tasks.task_model import HeadPlan, TaskModel
from recipes_at_toy_size import SYSTEMS
from small_tasks import classes, numbers, pairs, tagged

KINDS = {
    "class": (table_task("kinds", Columns()), classes()),
    "pair": (table_task("kinds", Columns("a", "b")), pairs()),
    "number": (table_task("kinds", Columns(), "number"), numbers()),
    "tags": (tagging_task("kinds"), tagged()),
}

every_kind = pytest.mark.parametrize("kind", KINDS)
every_system = pytest.mark.parametrize("system", SYSTEMS)


@pytest.fixture
def solver(pretrained):
    def make(system: str, task: Task, **settings) -> FineTuned:
        source = pretrained(system)
        recipe = source.model.recipe
        choice = default_head(recipe, task.answer)
        net = TaskModel(recipe, source.tokenizer.size, HeadPlan(choice, num_outputs(task)))
        net.encoder.load_state_dict(source.model.encoder.state_dict())
        begin(net.head, source.model, seed=5)
        return FineTuned(net, source.tokenizer, task, **{"precision": "float32", **settings})

    return make


def outputs(predictions: list[Prediction]) -> torch.Tensor:
    """Everything that a model says as numbers, one row an example."""
    return torch.tensor(
        [
            list(p.probabilities.values())
            if isinstance(p.probabilities, dict)
            else list(p.probabilities or [p.answer])
            for p in predictions
        ]
    )


@every_system
@every_kind
def test_order_and_neighbours_change_nothing(solver, system: str, kind: str) -> None:
    task, examples = KINDS[kind]
    model = solver(system, task.gathered(examples))
    together = model.predict(examples)
    backward = model.predict(examples[::-1])[::-1]
    assert torch.allclose(outputs(together), outputs(backward), atol=1e-5)
    alone = [model.predict([example])[0] for example in examples[::4]]
    assert torch.allclose(outputs(together[::4]), outputs(alone), atol=1e-5)


@every_kind
def test_saving_and_loading_change_nothing(solver, kind: str, tmp_path: Path) -> None:
    task, examples = KINDS[kind]
    model = solver("modern", task.gathered(examples), length=20)
    model.save(tmp_path / "model")
    again = load_fine_tuned(tmp_path / "model", precision="float32")
    assert again.predict(examples) == model.predict(examples)
    assert again.task.labels == model.task.labels
    assert again.maker.length == 20


def test_bf16_answers_as_float32_does(solver) -> None:
    task, examples = KINDS["class"]
    model = solver("modern", task.gathered(examples))
    fast = FineTuned(model.net, model.tokenizer, model.task, precision="bf16")
    assert torch.allclose(
        outputs(model.predict(examples)), outputs(fast.predict(examples)), atol=0.02
    )


def test_texts_pairs_and_words_can_be_given_plainly(solver) -> None:
    texts = solver("bert", KINDS["class"][0].gathered(classes()))
    assert texts.predict(["The red bird"]) == texts.predict([Example("The red bird")])
    assert texts.predict([("a", "b")]) == texts.predict([Example("a", "b")])
    tags = solver("bert", KINDS["tags"][0].gathered(tagged()))
    assert tags.predict(["The red  bird"]) == tags.predict([TaggedWords(("The", "red", "bird"))])


def test_every_word_of_a_long_sentence_has_a_tag(solver) -> None:
    model = solver("bert", KINDS["tags"][0].gathered(tagged()), length=10)
    (prediction,) = model.predict([TaggedWords(("red", "bird") * 20)])
    assert len(prediction.answer) == len(prediction.probabilities) == 40
    assert model.predict([TaggedWords(())]) == [Prediction((), ())]


def test_a_fine_tuned_model_embeds_and_has_no_words_to_fill_in(solver) -> None:
    model = solver("bert", KINDS["class"][0].gathered(classes()))
    assert model.embed(["The red bird"]).shape == (1, 32)
    with pytest.raises(UserError, match="needs a model with an output over the vocabulary"):
        model.fill_mask("The [MASK] bird")


def test_a_damaged_folder_is_named(solver, tmp_path: Path) -> None:
    solver("bert", KINDS["class"][0].gathered(classes())).save(tmp_path)
    about = json.loads((tmp_path / "task.json").read_text())
    del about["task"]["labels"]
    (tmp_path / "task.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"task\.json is damaged .*: task\.labels: is missing"):
        load_fine_tuned(tmp_path)
    with pytest.raises(UserError, match="is no fine-tuned model"):
        load_fine_tuned(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "task",
    [
        find_task("cola"),
        find_task("restoration"),
        table_task("own", Columns("a", "b", "c", ("a", "b", "c")), labels=("x", "y")),
        table_task("own", Columns("a"), "number"),
        tagging_task("own", "xpos"),
    ],
    ids=lambda task: f"{task.name}-{task.answer.name}",
)
def test_a_task_is_described_whole(task: Task) -> None:
    again = StoredTask.model_validate(json.loads(json.dumps(described(task)))).task()
    assert again == task


def test_a_task_made_in_python_cannot_be_read_from_a_file() -> None:
    task = StoredTask.model_validate(described(Task("own", ClassAnswer()))).task()
    with pytest.raises(UserError, match="examples of this task were made in Python"):
        task.read(Path("file"))
