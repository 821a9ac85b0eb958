"""Random request bodies for every endpoint of a server with a model of every task."""

import json
import random
from collections.abc import Callable
from typing import Any, ClassVar

from fastapi.testclient import TestClient

from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel
from bertwright.serving.app import create_app
from bertwright.serving.settings import ServingSettings
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.default_head import default_head
from bertwright.tasks.heads.head import init_head
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel
from fuzz.case import Case, Kind
from fuzz.junk import TEXTS, as_json, changed, changed_text, junk
from fuzz.texts import sentence
from fuzz.workspace import Workspace

TAGGED = [TaggedSentence(("a", "bird"), ("O", "B-X")), TaggedSentence(("a",), ("I-X",))]

TASKS: dict[str, Task] = {
    "polarity": table_task("polarity", Columns(), labels=("old", "new")),
    "pairs": table_task("pairs", Columns("a", "b"), labels=("no", "yes")),
    "topics": table_task("topics", Columns(), "labels", labels=("old", "red")),
    "number": table_task("number", Columns(), "number"),
    "similar": find_task("similarity"),
    "rank": find_task("rank"),
    "tagger": tagging_task("tagger").with_labels_from(TAGGED),
    "reader": find_task("squad1"),
}

ALLOWED_STATUS = (200, 400, 404, 405, 408, 413, 415, 422, 429)


class Endpoints(Kind):
    """Request bodies with a random change, which never cause an internal error."""

    name: ClassVar[str] = "endpoints"
    weight: ClassVar[float] = 10

    def __init__(self, workspace: Workspace) -> None:
        encoder = load(workspace.model, "float32")
        models = {
            "encoder": encoder,
            **{name: _random_task_model(encoder, task) for name, task in TASKS.items()},
        }
        settings = ServingSettings(
            max_texts=8, max_text_tokens=32, max_body_bytes=1 << 18, max_queue_tokens=1 << 12
        )
        self._client = TestClient(create_app(models, settings), raise_server_exceptions=False)
        self._client.__enter__()

    def case(self, rng: random.Random) -> Case:
        path, make_body = rng.choice(BODIES)
        body = make_body(rng)
        if rng.random() < 0.3:
            body["model"] = rng.choice(("encoder", *TASKS, *TEXTS[:6]))
        text = as_json(changed(rng, body)) if rng.random() < 0.8 else as_json(body)
        text = changed_text(rng, text) if rng.random() < 0.2 else text
        content = text.encode("utf-8", "surrogatepass")
        content_type = rng.choice((*["application/json"] * 8, "text/plain", ""))
        return Case(f"{path} {text}", lambda: self._post(path, content, content_type))

    def _post(self, path: str, content: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        response = self._client.post(path, content=content, headers=headers)
        if response.status_code not in ALLOWED_STATUS:
            raise AssertionError(f"{response.status_code} {response.text[:200]}")
        if response.status_code != 200:
            error = response.json()["error"]
            raise UserError(error["message"] if isinstance(error, dict) else error)
        if path != "/explore":
            json.loads(response.content, parse_constant=_reject_constant)


def _reject_constant(constant: str) -> None:
    raise AssertionError(f"a response contains {constant}")


def _texts(rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return sentence(rng)
    return [sentence(rng) for _ in range(rng.randint(1, 3))]


BODIES: list[tuple[str, Callable[[random.Random], dict[str, Any]]]] = [
    (
        "/embed",
        lambda rng: {"inputs": _texts(rng), "normalize": True, "truncate": rng.random() < 0.5},
    ),
    ("/", lambda rng: {"inputs": _texts(rng)}),
    (
        "/v1/embeddings",
        lambda rng: {"input": _texts(rng), "encoding_format": "base64", "dimensions": 3},
    ),
    (
        "/predict",
        lambda rng: {
            "inputs": [[sentence(rng), sentence(rng)]],
            "raw_scores": True,
            "model": "pairs",
        },
    ),
    (
        "/predict",
        lambda rng: {"inputs": _texts(rng), "model": rng.choice(("polarity", "topics", "number"))},
    ),
    (
        "/rerank",
        lambda rng: {"query": sentence(rng), "texts": [sentence(rng)], "return_text": True},
    ),
    (
        "/fill-mask",
        lambda rng: {"inputs": [f"[MASK] {sentence(rng)}"], "top_k": rng.randint(1, 100)},
    ),
    ("/tag", lambda rng: {"inputs": _texts(rng)}),
    (
        "/answer",
        lambda rng: {
            "inputs": [{"question": sentence(rng), "text": sentence(rng)}],
            "truncate": True,
        },
    ),
    (
        "/explore",
        lambda rng: (
            {"text": sentence(rng), "layer": junk(rng)}
            if rng.random() < 0.3
            else {"text": sentence(rng)}
        ),
    ),
]


def _random_task_model(source: TextModel, task: Task) -> FineTunedModel:
    """Return a model for a task with a random head."""
    recipe = source.model.recipe
    head = HeadSpec(
        default_head(recipe, task.output_type), num_outputs(task), task.output_type.kind_name()
    )
    model = TaskModel(recipe, source.tokenizer.vocab_size, head)
    model.encoder.load_state_dict(source.model.encoder.state_dict())
    init_head(model.head, source.model, seed=5)
    return FineTunedModel(model, source.tokenizer, task, precision="float32")
