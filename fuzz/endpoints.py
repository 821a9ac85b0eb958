"""Bodies of JSON for every endpoint of a server of models for every task."""

import json
import random
from typing import Any, ClassVar

from fastapi.testclient import TestClient

from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.model.text_model import TextModel
from bertwright.serving.application import application
from bertwright.serving.settings import Settings
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned, num_outputs
from bertwright.tasks.fitting_heads import default_head
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import begin
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel
from fuzz.case import Case, Kind
from fuzz.junk import TEXTS, as_json, changed, changed_text, junk
from fuzz.texts import sentence
from fuzz.workspace import Workspace

TAGGED = [TaggedWords(("a", "bird"), ("O", "B-X")), TaggedWords(("a",), ("I-X",))]

TASKS: dict[str, Task] = {
    "judge": table_task("judge", Columns(), labels=("old", "new")),
    "pairs": table_task("pairs", Columns("a", "b"), labels=("no", "yes")),
    "topics": table_task("topics", Columns(), "labels", labels=("old", "red")),
    "number": table_task("number", Columns(), "number"),
    "near": find_task("similarity"),
    "rank": find_task("rank"),
    "tagger": tagging_task("tagger").gathered(TAGGED),
    "reader": find_task("squad1"),
}

ANSWERED = (200, 400, 404, 405, 408, 413, 415, 422, 429)


class Endpoints(Kind):
    """A body with a change somewhere: never an internal error, always a sentence."""

    name: ClassVar[str] = "endpoints"
    weight: ClassVar[float] = 10

    def __init__(self, made: Workspace) -> None:
        encoder = load(made.model, "float32")
        models = {
            "encoder": encoder,
            **{name: _solver(encoder, task) for name, task in TASKS.items()},
        }
        settings = Settings(num_texts=8, text_tokens=32, body_bytes=1 << 18, queue_tokens=1 << 12)
        self._client = TestClient(application(models, settings), raise_server_exceptions=False)
        self._client.__enter__()

    def case(self, draw: random.Random) -> Case:
        path, body = draw.choice(BODIES)
        stated = body(draw)
        if draw.random() < 0.3:
            stated["model"] = draw.choice(("encoder", *TASKS, *TEXTS[:6]))
        text = as_json(changed(draw, stated)) if draw.random() < 0.8 else as_json(stated)
        text = changed_text(draw, text) if draw.random() < 0.2 else text
        content = text.encode("utf-8", "surrogatepass")
        kind = draw.choice((*["application/json"] * 8, "text/plain", ""))
        return Case(f"{path} {text}", lambda: self._ask(path, content, kind))

    def _ask(self, path: str, content: bytes, kind: str) -> None:
        answer = self._client.post(path, content=content, headers={"Content-Type": kind})
        if answer.status_code not in ANSWERED:
            raise AssertionError(f"{answer.status_code} {answer.text[:200]}")
        if answer.status_code != 200:
            error = answer.json()["error"]
            raise UserError(error["message"] if isinstance(error, dict) else error)
        if path != "/explore":
            json.loads(answer.content, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"an answer holds {constant}")


def _texts(draw: random.Random) -> Any:
    if draw.random() < 0.3:
        return sentence(draw)
    return [sentence(draw) for _ in range(draw.randint(1, 3))]


BODIES: list[tuple[str, Any]] = [
    ("/embed", lambda d: {"inputs": _texts(d), "normalize": True, "truncate": d.random() < 0.5}),
    ("/", lambda d: {"inputs": _texts(d)}),
    (
        "/v1/embeddings",
        lambda d: {"input": _texts(d), "encoding_format": "base64", "dimensions": 3},
    ),
    (
        "/predict",
        lambda d: {"inputs": [[sentence(d), sentence(d)]], "raw_scores": True, "model": "pairs"},
    ),
    ("/predict", lambda d: {"inputs": _texts(d), "model": d.choice(("judge", "topics", "number"))}),
    ("/rerank", lambda d: {"query": sentence(d), "texts": [sentence(d)], "return_text": True}),
    ("/fill-mask", lambda d: {"inputs": [f"[MASK] {sentence(d)}"], "top_k": d.randint(1, 100)}),
    ("/tag", lambda d: {"inputs": _texts(d)}),
    (
        "/answer",
        lambda d: {"inputs": [{"question": sentence(d), "text": sentence(d)}], "truncate": True},
    ),
    (
        "/explore",
        lambda d: (
            {"text": sentence(d), "layer": junk(d)} if d.random() < 0.3 else {"text": sentence(d)}
        ),
    ),
]


def _solver(source: TextModel, task: Task) -> FineTuned:
    """Return a model for a task, whose head answers at random."""
    recipe = source.model.recipe
    plan = HeadPlan(default_head(recipe, task.answer), num_outputs(task), task.answer.name)
    net = TaskModel(recipe, source.tokenizer.size, plan)
    net.encoder.load_state_dict(source.model.encoder.state_dict())
    begin(net.head, source.model, seed=5)
    return FineTuned(net, source.tokenizer, task, precision="float32")
