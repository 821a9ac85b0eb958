"""A trace shows what training sees: every hidden place, every target, and the answers that its loss
is made of."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_stories import stories
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.model import TensorBatch
from bertwright.model.text_model import TextModel
from bertwright.text.little_data import little_data
from bertwright.text.shards import Data
from bertwright.training.clock import Place
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.trace_page import page
from bertwright.training.tracing import different_phases, shortened_to, trace
from recipes_at_toy_size import SYSTEMS, toy

TEXT = "The red fox runs over the hill. It sees a river. Birds sing, and the fox listens to them."


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_trace_is_what_training_sees_and_its_answers_are_what_the_loss_is_of(
    system: str, rich_data: Data
) -> None:
    data = rich_data
    recipe = toy(system, f"text.tokenizer.size={data.tokenizer.size}")
    model = Model.build(recipe, data.tokenizer.size, data.tokenizer)
    piece = data.tokenizer.piece
    batches, row, zero = RecipeBatches(recipe, data), np.array([3]), np.array([0])
    turns = [(n, t) for n in range(len(recipe.phases)) for t in range(len(recipe.turns_of(n)))]
    for phase, turn in turns:
        objectives = recipe.turns_of(phase)[turn].objectives
        found = trace(recipe, data, phase, row=3, model=model, turn=turn)
        originals = batches.assembled(phase, objectives, row, zero)
        batch = batches.asked(Place(0, 0.5, phase, 0.5, 0, 0.5), objectives, row, zero)
        length = originals.pieces.shape[1]
        altered = batch.pieces[0, :length] != originals.pieces[0]
        tokens = found.tokens
        assert len(tokens) == batch.pieces.shape[1]
        assert [t.piece for t in tokens[:length]] == [piece(int(p)) for p in originals.pieces[0]]
        assert [t.shown for t in tokens] == [piece(int(p)) for p in batch.pieces[0]]
        assert [t.place for t in tokens if t.hidden] == np.flatnonzero(altered).tolist()
        position = batch.coordinates.position
        if position is not None:
            assert [t.coordinates["position"] for t in tokens] == position[0].tolist()
        with torch.no_grad():
            losses = model.losses(TensorBatch(batch), objectives)
        for name, question in batch.questions.items():
            if not objectives[name].guesses:
                continue
            asks = [(t.place, a) for t in tokens for a in t.asks if a.objective == name]
            counts = question.weight > 0
            where, target = question.where[counts], question.target[counts]
            order = np.argsort(where, kind="stable")
            assert [place for place, _ in asks] == where[order].tolist()
            if objectives[name].names_pieces:
                assert [a.target for _, a in asks] == [piece(int(t)) for t in target[order]]
            for _, ask in asks:
                assert len({a.choice for a in ask.answers}) == len(ask.answers) > 0
            nats = -sum(math.log(ask.probability or 0) for _, ask in asks)
            assert nats == pytest.approx(float(losses[name].sum), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s != "transformer"])
def test_a_sentence_or_two_are_enough(system: str, data: Data) -> None:
    recipe = toy(system, "assembly.length=24")
    with little_data([TEXT, "A ship comes home. The lamp is lit."], data.tokenizer) as little:
        short = shortened_to(recipe, little)
        for phase in different_phases(short):
            found = trace(short, little, phase)
            assert any(token.asks for token in found.tokens)
            assert found.objectives == tuple(short.turns_of(phase)[0].objectives)


def test_a_sentence_is_no_translation(data: Data) -> None:
    with little_data([TEXT], data.tokenizer) as little, pytest.raises(UserError, match="en,de="):
        trace(shortened_to(toy("transformer"), little), little, 0)


def test_the_kept_and_the_hidden_differ(data: Data) -> None:
    recipe = toy(
        "bert", "objectives.masked.corruption={kind: replace, mask: 1, random: 0, keep: 0}"
    )
    tokens = trace(recipe, data, 0).tokens
    hidden = [t for t in tokens if t.hidden]
    assert {t.shown for t in hidden} == {"[MASK]"}
    assert [t.asks[0].target for t in hidden] == [t.piece for t in hidden]
    assert not any(t.asks[0].answers for t in hidden)


def test_phases_that_do_the_same_are_shown_once(data: Data) -> None:
    recipe = toy("bert", "phases=[{length: 64}, {length: 64}, {objectives: {masked: {}}}]")
    assert different_phases(recipe) == [0, 2]


def test_a_page_needs_nothing_else_and_is_safe(data: Data) -> None:
    with little_data(["<b>Bold</b> & brave. " * 3 + "It is <i>so</i>."], data.tokenizer) as little:
        found = page([trace(shortened_to(toy("bert"), little), little, 0)])
    assert "http" not in found
    assert "<script" not in found
    assert "<b>" not in found
    assert found.count("<tr>") > 10


def test_a_row_or_phase_that_is_not_there_is_named(data: Data) -> None:
    with pytest.raises(UserError, match="there is no row"):
        trace(toy("bert"), data, 0, row=10**6)
    with pytest.raises(UserError, match="xlnet has 1, counted"):
        trace(toy("xlnet"), data, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Data) -> Path:
    folder = tmp_path_factory.mktemp("traced") / "model"
    model = Model.build(toy("bert"), data.tokenizer.size)
    TextModel(model, data.tokenizer).save(folder)
    return folder


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, ["trace", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_verb_traces_a_text_a_data_set_and_a_model(
    data: Data, folder: Path, tmp_path: Path
) -> None:
    plain = invoke("spanbert-tiny", "--text", TEXT)
    assert "\x1b" not in plain
    assert "masked: " in plain
    assert "span-boundary: " in plain
    told = json.loads(invoke("bert-tiny", "--data", data.path, "--phase", 0, "--json"))
    (shown,) = told["phases"]
    assert len(shown["tokens"]) == 128
    html = tmp_path / "trace.html"
    assert invoke("--model", folder, "--text", TEXT, "--html", html, "--top-k", 2) == ""
    assert "right: " in html.read_text()
    told = json.loads(invoke("--model", folder, "--text", stories(1)[0], "--json"))
    assert {"choice", "probability"} == set(
        next(a for t in told["phases"][0]["tokens"] for a in t["asks"])["answers"][0]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bert-tiny",), "give --text or --data, one of the two"),
        (("bert-tiny", "--text", " "), "holds no word"),
        (("bert-tiny", "--text", ""), "holds no word"),
        (("bert-tiny", "--text", TEXT, "--row", 70), "there is no row 70: the text makes 1"),
        (("bert-tiny", "--text", TEXT, "--phase", 7), "there is no phase 7: bert-tiny has 2"),
        (("bert4rec-tiny", "--text", TEXT), "items are not learned from text"),
        (
            ("nothing", "--text", TEXT),
            r"there is no recipe 'nothing' \(known: albert-\*, .*bert-\*",
        ),
    ],
)
def test_a_mistake_is_named(words: tuple[object, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        invoke(*words)
