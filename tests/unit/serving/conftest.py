"""Small models of every kind, and a test client of a server."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.interop.onnx.model import OnnxModel, load_onnx
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.serving.app import create_app
from bertwright.serving.settings import ServingSettings
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.default_head import default_head
from bertwright.tasks.heads.head import HeadConfig, init_head
from bertwright.tasks.outputs import TextOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel
from bertwright.testing.toy import randomise, toy_text_model
from small_tasks import ENGLISH, TEXTS, classes, tagged
from toy_recipes import shaken, toy

TASKS = {
    "sentiment": table_task("sentiment", Columns()).with_labels_from(classes()),
    "pairs": table_task("pairs", Columns("a", "b"), labels=("no", "yes")),
    "topics": table_task("topics", Columns(), "labels", labels=("old", "red")),
    "number": table_task("number", Columns(), "number"),
    "similarity": find_task("similarity"),
    "rank": find_task("rank"),
    "tagger": tagging_task("tagger").with_labels_from(tagged()),
    "reader": find_task("squad1"),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def encoder() -> TextModel:
    """An encoder like a pre-trained one, in float32."""
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    recipe = toy("bert", "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")


@pytest.fixture(scope="session")
def task_models(encoder: TextModel) -> dict[str, FineTunedModel]:
    """A model with a random head for each task."""
    return {name: _task_model(encoder, task) for name, task in TASKS.items()}


@pytest.fixture(scope="session")
def translator() -> FineTunedModel:
    """A random model that generates texts of up to 6 tokens."""
    examples = [Example(text, label="old") for text in TEXTS]
    pretrained = toy_text_model(TEXTS, recipe="bart")
    randomise(pretrained.model, 0.3)
    task = Task("task", TextOutput(max_target_length=6))
    return finetune(pretrained, task, train=examples, dev=examples[:2], epochs=0).model


@pytest.fixture(scope="session")
def graph(encoder: TextModel, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    """The encoder as an ONNX graph."""
    folder = tmp_path_factory.mktemp("onnx") / "graph"
    export_onnx(encoder, folder)
    return load_onnx(folder, threads=1)


@pytest.fixture(scope="session")
def make_task_model() -> Callable[..., FineTunedModel]:
    """Return a function that makes a model with a random head for a task."""
    return _task_model


def _task_model(source: TextModel, task: Task, head: HeadConfig | None = None) -> FineTunedModel:
    recipe = source.model.recipe
    config = head or default_head(recipe, task.output_type)
    spec = HeadSpec(config, num_outputs(task), task.output_type.kind_name())
    model = TaskModel(recipe, source.tokenizer.vocab_size, spec)
    model.encoder.load_state_dict(source.model.encoder.state_dict())
    init_head(model.head, source.model, seed=5)
    shaken(model.head, 0.3)
    return FineTunedModel(model, source.tokenizer, task, precision="float32")


@pytest.fixture
def serving(encoder: TextModel) -> Iterator[Callable[..., TestClient]]:
    """Return a function that makes a client of a server with models and settings."""
    with ExitStack() as stack:

        def make(models: Mapping[str, TextModel] | None = None, **settings: Any) -> TestClient:
            app = create_app(models or {"encoder": encoder}, ServingSettings(**settings))
            return stack.enter_context(TestClient(app))

        yield make
