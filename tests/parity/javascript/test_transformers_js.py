"""transformers.js opens an ONNX folder, in node and in a browser, and computes what we compute.

Needs its packages: ``npm ci --prefix tests/parity/javascript``.
"""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import bertwright as bw
from bertwright.data.tokenization.tokenizer import ByteBpeConfig, UnigramConfig, WordPieceConfig
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.initialisation import initialise
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import ExtractiveQuestion, TaggedSentence
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.outputs import MultiLabelOutput, SimilarityOutput, SpanOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel
from small_tasks import ENGLISH, classes, questions, several_labels, similar, tagged
from toy_recipes import shaken, toy

pytestmark = pytest.mark.javascript

HERE = Path(__file__).parent
PACKAGES = HERE / "node_modules"
TEXTS = [
    "The red bird",
    "The old house is new and remarkably large",
    "A [SEP] \u00c9tude, \u4e2d 7!",
]

TASKS: dict[str, tuple[Task, Any, dict[str, Any]]] = {
    "class": (table_task("ages", Columns()), classes(), {"kind": "pooler"}),
    "labels": (
        table_task("both", Columns(), MultiLabelOutput()),
        several_labels(),
        {"kind": "mlp"},
    ),
    "tags": (tagging_task("things"), tagged(), {"kind": "plain", "pooling": "positions"}),
    "span": (Task("colours", SpanOutput()), questions(), {"kind": "plain", "pooling": "positions"}),
    "near": (
        table_task("near", Columns(), SimilarityOutput(max_label=5.0)),
        similar(),
        {"kind": "plain", "pooling": "mean"},
    ),
}

JOBS: list[dict[str, Any]] = [
    {
        "name": "features",
        "model": "encoder",
        "task": "feature-extraction",
        "inputs": [TEXTS],
        "options": {"pooling": "mean", "normalize": True},
    },
    {"name": "fill-mask", "model": "encoder", "inputs": ["The red [MASK] is old"]},
    {"name": "encoder", "model": "encoder", "task": "feature-extraction", "raw": True},
    {
        "name": "int8",
        "model": "encoder",
        "task": "feature-extraction",
        "raw": True,
        "dtype": "q8",
    },
    *(
        {"name": name, "model": name, "task": "feature-extraction", "raw": True}
        for name in ("near", "byte-bpe", "unigram")
    ),
    {"name": "class", "model": "class", "task": "text-classification", "options": {"top_k": None}},
    {
        "name": "labels",
        "model": "labels",
        "task": "text-classification",
        "options": {"top_k": None},
    },
    {
        "name": "tags",
        "model": "tags",
        "task": "token-classification",
        "inputs": [TEXTS[1]],
        "options": {"ignore_labels": []},
    },
    {
        "name": "span",
        "model": "span",
        "task": "question-answering",
        "inputs": [["Which colour?"]],
        "options": {"text_pair": [TEXTS[0]]},
        "raw": True,
    },
    {
        "name": "answer",
        "model": "span",
        "task": "question-answering",
        "inputs": ["Which colour?", TEXTS[0]],
    },
]
for _job in JOBS:
    _job.setdefault("task", _job["name"])
    _job.setdefault("dtype", "fp32")
    _job.setdefault("inputs", [TEXTS])
    _job.setdefault("options", {})


@pytest.fixture(scope="module")
def models() -> dict[str, TextModel]:
    """An encoder with an LM head, and a fine-tuned model for each task, all random."""
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    recipe = toy("bert", "encoder.depth.layers=1", "encoder.positions.size=48")
    network = shaken(Model.build(recipe, tokenizer.vocab_size), 0.3)
    result: dict[str, TextModel] = {"encoder": TextModel(network, tokenizer, "float32")}
    for config in (ByteBpeConfig(vocab_size=400), UnigramConfig(vocab_size=160)):
        other = bw.train_tokenizer([ENGLISH], config)
        network = Model.build(toy("modern", "encoder.depth.layers=1"), other.vocab_size)
        result[config.kind] = TextModel(shaken(network, 0.3), other, "float32")
    for name, (unlabelled, examples, head) in TASKS.items():
        task = unlabelled.with_labels_from(examples)
        kind = task.output_type.kind_name()
        head_spec = HeadSpec(HeadConfig.parse(head), num_outputs(task), kind)
        task_model = TaskModel(recipe, tokenizer.vocab_size, head_spec)
        initialise(task_model, recipe.encoder.initialisation, seed=5)
        network = shaken(task_model, 0.3)
        result[name] = FineTunedModel(
            network, tokenizer, task, precision="float32", temperature=1.5
        )
    return result


@pytest.fixture(scope="module")
def folder(models: dict[str, TextModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported models."""
    folder = tmp_path_factory.mktemp("javascript")
    for name, model in models.items():
        export_onnx(model, folder / name, int8=name == "encoder")
    return folder


@pytest.fixture(scope="module")
def node_results(folder: Path) -> dict[str, Any]:
    process = subprocess.run(
        ["node", str(HERE / "run_node.mjs")],
        input=json.dumps({"folder": str(folder), "jobs": JOBS}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


class PageHandler(SimpleHTTPRequestHandler):
    """A server of the page, the packages and the models."""

    def __init__(self, folder: Path, *args: Any) -> None:
        self.roots = {
            "models": folder,
            "transformers": PACKAGES / "@huggingface" / "transformers" / "dist",
            "onnxruntime": PACKAGES / "onnxruntime-web" / "dist",
        }
        super().__init__(*args)

    def translate_path(self, path: str) -> str:
        first, _, rest = path.partition("?")[0].lstrip("/").partition("/")
        return str(self.roots[first] / rest if first in self.roots else HERE / first)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def page_address(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(PageHandler, folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page.html"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser_results(browser: Any, page_address: str) -> dict[str, Any]:
    page = browser.new_page()
    page.goto(page_address)
    page.wait_for_function("window.runJobs !== undefined")
    results = page.evaluate("(jobs) => window.runJobs(jobs)", JOBS)
    page.close()
    return results


@pytest.fixture(params=["node_results", "browser_results"])
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The results of the jobs, in node and in a browser."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("name", ["encoder", "byte-bpe", "unigram"])
def test_tokens_and_vectors_equal_ours(
    models: dict[str, TextModel], results: dict[str, Any], name: str
) -> None:
    encoder, raw = models[name], results[name]
    for ours, theirs in zip(encoder.encode_ids(TEXTS), raw["input_ids"], strict=True):
        assert theirs[: len(ours)] == ours
        assert set(theirs[len(ours) :]) <= {encoder.tokenizer.special_tokens.pad}
    np.testing.assert_allclose(raw["sentence_embedding"], encoder.embed(TEXTS), atol=1e-4)


def test_features_equal_ours(models: dict[str, TextModel], results: dict[str, Any]) -> None:
    expected = models["encoder"].embed(TEXTS, normalise=True)
    np.testing.assert_allclose(results["features"], expected, atol=1e-4)
    expected = models["near"].embed(TEXTS)
    np.testing.assert_allclose(results["near"]["sentence_embedding"], expected, atol=1e-4)


def test_int8_vectors_are_close(models: dict[str, TextModel], results: dict[str, Any]) -> None:
    vectors, expected = (
        np.array(results["int8"]["sentence_embedding"]),
        models["encoder"].embed(TEXTS),
    )
    norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (vectors * expected).sum(1) / norms
    assert 0.95 < cosines.min() < 1 - 1e-7


def test_masked_tokens_equal_ours(models: dict[str, TextModel], results: dict[str, Any]) -> None:
    (expected,) = models["encoder"].fill_mask("The red [MASK] is old")
    actual = [(prediction["token_str"], prediction["score"]) for prediction in results["fill-mask"]]
    assert [token for token, _ in actual] == [p.token for p in expected]
    np.testing.assert_allclose([s for _, s in actual], [p.probability for p in expected], atol=1e-4)


@pytest.mark.parametrize("name", ["class", "labels"])
def test_probabilities_equal_ours(
    models: dict[str, TextModel], results: dict[str, Any], name: str
) -> None:
    model = models[name]
    assert isinstance(model, FineTunedModel)
    for prediction, scores in zip(model.predict(TEXTS), results[name], strict=True):
        assert isinstance(prediction.probabilities, dict)
        actual = {score["label"]: score["score"] for score in scores}
        assert actual == pytest.approx(prediction.probabilities, abs=1e-4)


def test_tags_equal_ours(models: dict[str, TextModel], results: dict[str, Any]) -> None:
    model = models["tags"]
    assert isinstance(model, FineTunedModel)
    sentences = [TaggedSentence(tuple(TEXTS[1].split()))]
    (sequence,) = model.output_decoder.encode(model.example_encoder, sentences)
    (prediction,) = model.predict(sentences)
    by_position = {token["index"]: token for token in results["tags"]}
    tokens = [by_position[position] for position in sequence.positions]
    assert [token["entity"] for token in tokens] == list(prediction.value)
    np.testing.assert_allclose(
        [token["score"] for token in tokens], prediction.probabilities, atol=1e-4
    )


def test_answers_equal_ours(models: dict[str, TextModel], results: dict[str, Any]) -> None:
    model, raw = models["span"], results["span"]
    assert isinstance(model, FineTunedModel)
    question = ExtractiveQuestion("Which colour?", TEXTS[0])
    (sequence,) = model.output_decoder.encode(model.example_encoder, [question])
    assert isinstance(sequence, TaskSequence)
    assert raw["input_ids"] == [sequence.token_ids]
    (logits,) = model.head_outputs([sequence])
    positions = list(sequence.positions)
    for column, name in enumerate(("start_logits", "end_logits")):
        actual = np.array(raw[name])[0, positions]
        np.testing.assert_allclose(actual, logits[:, column] / 1.5, atol=1e-4)
    assert set(results["answer"]["answer"].split()) <= set(TEXTS[0].lower().split())
