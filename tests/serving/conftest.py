"""Small models of every kind that is served, and a client of an application in the same process."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.serving.application import application
from bertwright.serving.settings import Settings
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned, num_outputs
from bertwright.tasks.fitting_heads import default_head
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import HeadChoice, begin
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import shaken, toy
from small_tasks import ENGLISH, classes, tagged

TASKS = {
    "judge": table_task("judge", Columns()).gathered(classes()),
    "pairs": table_task("pairs", Columns("a", "b"), labels=("no", "yes")),
    "topics": table_task("topics", Columns(), "labels", labels=("old", "red")),
    "number": table_task("number", Columns(), "number"),
    "near": find_task("similarity"),
    "rank": find_task("rank"),
    "tagger": tagging_task("tagger").gathered(tagged()),
    "reader": find_task("squad1"),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def encoder() -> TextModel:
    """An encoder as if it came from pre-training, in float32."""
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    recipe = toy("bert", "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, "float32")


@pytest.fixture(scope="session")
def solvers(encoder: TextModel) -> dict[str, FineTuned]:
    """A model for each of the tasks, by its name, whose head answers at random."""
    return {name: _solver(encoder, task) for name, task in TASKS.items()}


@pytest.fixture(scope="session")
def solving() -> "Solving":
    """Makes a model for a task, whose head answers at random: the usual one unless told."""
    return _solver


Solving = Callable[..., FineTuned]


def _solver(source: TextModel, task: Task, head: HeadChoice | None = None) -> FineTuned:
    recipe = source.model.recipe
    chosen = head or default_head(recipe, task.answer)
    plan = HeadPlan(chosen, num_outputs(task), task.answer.name)
    net = TaskModel(recipe, source.tokenizer.size, plan)
    net.encoder.load_state_dict(source.model.encoder.state_dict())
    begin(net.head, source.model, seed=5)
    shaken(net.head, 0.3)
    return FineTuned(net, source.tokenizer, task, precision="float32")


Serving = Callable[..., TestClient]


@pytest.fixture
def serving(encoder: TextModel) -> Iterator[Serving]:
    """A client of a server of some models, one encoder unless told, with these settings."""
    with ExitStack() as stack:

        def make(models: Mapping[str, TextModel] | None = None, **settings: Any) -> TestClient:
            app = application(models or {"encoder": encoder}, Settings(**settings))
            return stack.enter_context(TestClient(app))

        yield make
