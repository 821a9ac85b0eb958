"""Graphs equal the models of the systems that cover most settings of the encoder's axes.

``recipes check`` covers all systems.
"""

from pathlib import Path
from typing import Any

import pytest

from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.encoder.depth import StackConfig
from bertwright.encoder.residual import AdditiveResidualConfig
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.interop.graph.parity import check_parity
from bertwright.interop.graph.tracing import write_onnx_graph
from bertwright.interop.onnx.session import OnnxSession
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from full_suite import full_except
from small_tasks import ENGLISH
from toy_recipes import SYSTEMS, VOCABULARY, shaken, toy

TRAINING_ONLY = {"dropout", "row_dropout", "initialisation"}


def axis_values(data: Any, path: str = "") -> set[tuple[str, Any]]:
    """The settings in plain data, by path; numbers count as zero or not."""
    if isinstance(data, dict):
        inner = [
            axis_values(value, f"{path}.{name}")
            for name, value in data.items()
            if name not in TRAINING_ONLY
        ]
        return set[tuple[str, Any]]().union(*inner)
    if isinstance(data, list):
        return set[tuple[str, Any]]().union(*(axis_values(value, path) for value in data))
    return {(path, data if isinstance(data, str) else bool(data))}


def most_diverse_systems(count: int) -> list[str]:
    """Systems chosen greedily by how many settings they add."""
    recipes = {system: toy(system) for system in SYSTEMS}
    settings = {
        system: axis_values(recipe.encoder.model_dump(mode="json"))
        | {("", recipe.output.kind_name())}
        for system, recipe in recipes.items()
    }
    uncovered, selected = set[tuple[str, Any]]().union(*settings.values()), list[str]()
    while uncovered and len(selected) < count:
        selected.append(max(SYSTEMS, key=lambda system: len(settings[system] & uncovered)))
        uncovered -= settings[selected[-1]]
    return selected


def small_recipe(system: str) -> Recipe:
    """A toy recipe, of one block if its blocks are alike: it is exported twice as fast."""
    recipe = toy(system)
    encoder, visibility = recipe.encoder, recipe.encoder.visibility
    has_equal_blocks = (
        encoder.depth == StackConfig(layers=2)
        and encoder.residual == AdditiveResidualConfig()
        and encoder.sliding_window is None
        and not encoder.mixer.is_recurrent
        and visibility.at_block(0) == visibility.at_block(1)
    )
    return toy(system, "encoder.depth.layers=1") if has_equal_blocks else recipe


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))


@pytest.mark.parametrize(
    "system",
    full_except(most_diverse_systems(4), kept=most_diverse_systems(4)[1:2]),
)
def test_onnxruntime_equals_the_model(system: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    recipe, graph = small_recipe(system), tmp_path / "model.onnx"
    model = TextModel(shaken(Model.build(recipe, VOCABULARY), 0.05), tokenizer, "float32")
    outputs = GraphOutputs.of(model)
    write_onnx_graph(model, outputs, {}, graph)
    parity = check_parity(model, outputs, OnnxSession(graph, threads=1))
    assert parity.max_difference < 1e-4
    assert parity.max_output > 0.1
