"""The graph of a recipe gives what the model gives: for the systems that make most of the choices
that any makes on the axes of an encoder. All of them are the affair of ``recipes check``."""

from pathlib import Path
from typing import Any

import pytest

from bertwright.encoder.depth import Stack
from bertwright.encoder.residual import Plain
from bertwright.interop.onnx.graph import inputs_of, outputs_of
from bertwright.interop.onnx.parity import parity
from bertwright.interop.onnx.session import Session
from bertwright.interop.onnx.tracing import write_graph
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Tokenizer, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import SYSTEMS, VOCABULARY, shaken, toy
from small_tasks import ENGLISH

OF_TRAINING = {"dropout", "row_dropout", "initialisation"}


def choices(value: Any, where: str = "") -> set[tuple[str, Any]]:
    """What is chosen anywhere in plain data; of a number it counts whether it is 0."""
    if isinstance(value, dict):
        inner = ((f"{where}.{name}", own) for name, own in value.items() if name not in OF_TRAINING)
        return {each for place, own in inner for each in choices(own, place)}
    if isinstance(value, list):
        return {each for own in value for each in choices(own, where)}
    return {(where, value if isinstance(value, str) else bool(value))}


def with_most_choices(number: int) -> list[str]:
    """So many systems: by turns that which makes most of the choices that are left."""
    recipes = {system: toy(system) for system in SYSTEMS}
    made = {
        system: choices(recipe.encoder.model_dump(mode="json")) | {("", recipe.output.own_kind())}
        for system, recipe in recipes.items()
    }
    left, found = set[tuple[str, Any]]().union(*made.values()), list[str]()
    while left and len(found) < number:
        found.append(max(SYSTEMS, key=lambda system: len(made[system] & left)))
        left -= made[found[-1]]
    return found


def small(system: str) -> Recipe:
    """A system as a toy; of one block, where two are alike: what is written takes half as long."""
    recipe = toy(system)
    encoder, rule = recipe.encoder, recipe.encoder.visibility
    alike = (
        encoder.depth == Stack(layers=2)
        and encoder.residual == Plain()
        and encoder.local is None
        and not encoder.mixer.recurrent
        and rule.at_block(0) == rule.at_block(1)
    )
    return toy(system, "encoder.depth.layers=1") if alike else recipe


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([ENGLISH], WordPieceChoice(size=100))


@pytest.mark.parametrize("system", with_most_choices(8))
def test_onnxruntime_gives_what_the_model_gives(
    system: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe, graph = small(system), tmp_path / "model.onnx"
    model = TextModel(shaken(Model.build(recipe, VOCABULARY), 0.05), tokenizer, "float32")
    inputs, outputs = inputs_of(recipe), outputs_of(model)
    write_graph(model, outputs, {}, graph)
    found = parity(model, inputs, outputs, Session(graph, threads=1))
    assert found.difference < 1e-4
    assert found.scale > 0.1
