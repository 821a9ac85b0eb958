"""Traces show the masks, targets and predictions of training."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.preparation import temporary_dataset
from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.models.model import DeviceBatch
from bertwright.models.text_model import TextModel
from bertwright.training.clock import Progress
from bertwright.training.diagnostics.trace.page import render_page
from bertwright.training.diagnostics.trace.trace import (
    distinct_phases,
    limit_to_data,
    trace_sequence,
)
from bertwright.training.pretraining_batches import PretrainingBatches
from toy_recipes import SYSTEMS, toy
from toy_stories import stories

TEXT = "The red fox runs over the hill. It sees a river. Birds sing, and the fox listens to them."


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_trace_shows_the_batch_and_the_predictions_of_the_loss(
    system: str, rich_data: Dataset
) -> None:
    data = rich_data
    recipe = toy(system, f"text.tokenizer.vocab_size={data.tokenizer.vocab_size}")
    model = Model.build(recipe, data.tokenizer.vocab_size, data.tokenizer)
    to_token = data.tokenizer.id_to_token
    batches, index, epoch = PretrainingBatches(recipe, data), np.array([3]), np.array([0])
    groups = [
        (n, g) for n in range(len(recipe.phases)) for g in range(len(recipe.objective_schedule(n)))
    ]
    for phase, group in groups:
        objectives = recipe.objective_schedule(phase)[group].objectives
        trace = trace_sequence(recipe, data, phase, sequence=3, model=model, objective_group=group)
        originals = batches.unmasked_sequences(phase, objectives, index, epoch)
        batch = batches.make_batch(Progress(0, 0.5, phase, 0.5, 0, 0.5), objectives, index, epoch)
        length = originals.token_ids.shape[1]
        is_changed = batch.token_ids[0, :length] != originals.token_ids[0]
        tokens = trace.tokens
        assert len(tokens) == batch.token_ids.shape[1]
        expected = [to_token(int(i)) for i in originals.token_ids[0]]
        assert [t.token for t in tokens[:length]] == expected
        assert [t.input_token for t in tokens] == [to_token(int(i)) for i in batch.token_ids[0]]
        assert [t.position for t in tokens if t.is_masked] == np.flatnonzero(is_changed).tolist()
        position_ids = batch.token_info.position_ids
        if position_ids is not None:
            assert [t.token_info["position_ids"] for t in tokens] == position_ids[0].tolist()
        with torch.no_grad():
            losses = model.losses(DeviceBatch(batch), objectives)
        for name, targets in batch.targets.items():
            if not objectives[name].capabilities.is_classification:
                continue
            traced = [(t.position, a) for t in tokens for a in t.targets if a.objective == name]
            counts = targets.weights > 0
            positions, labels = targets.positions[counts], targets.labels[counts]
            order = np.argsort(positions, kind="stable")
            assert [position for position, _ in traced] == positions[order].tolist()
            if objectives[name].capabilities.predicts_tokens:
                assert [t.label for _, t in traced] == [to_token(int(i)) for i in labels[order]]
            for _, target in traced:
                assert len({p.label for p in target.predictions}) == len(target.predictions) > 0
            nats = -sum(math.log(target.probability or 0) for _, target in traced)
            assert nats == pytest.approx(float(losses[name].sum), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s not in ("cove", "transformer")])
def test_short_texts_can_be_traced(system: str, data: Dataset) -> None:
    recipe = toy(system, "assembly.length=24")
    with temporary_dataset(
        [TEXT, "A ship comes home. The lamp is lit."], data.tokenizer
    ) as short_data:
        short = limit_to_data(recipe, short_data)
        for phase in distinct_phases(short):
            trace = trace_sequence(short, short_data, phase)
            # Word vectors are not trained as classifiers, so they have no predictions to trace.
            objectives = short.objectives_of(phase).values()
            has_classes = any(o.capabilities.is_classification for o in objectives)
            assert any(token.targets for token in trace.tokens) == has_classes
            assert trace.objectives == tuple(short.objective_schedule(phase)[0].objectives)


def test_translation_needs_parallel_text(data: Dataset) -> None:
    with (
        temporary_dataset([TEXT], data.tokenizer) as short_data,
        pytest.raises(UserError, match="en,de="),
    ):
        trace_sequence(limit_to_data(toy("transformer"), short_data), short_data, 0)


def test_masked_tokens_have_the_mask_as_input(data: Dataset) -> None:
    recipe = toy(
        "bert", "objectives.masked.corruption={kind: replace, mask: 1, random: 0, keep: 0}"
    )
    tokens = trace_sequence(recipe, data, 0).tokens
    masked = [t for t in tokens if t.is_masked]
    assert {t.input_token for t in masked} == {"[MASK]"}
    assert [t.targets[0].label for t in masked] == [t.token for t in masked]
    assert not any(t.targets[0].predictions for t in masked)


def test_equal_phases_are_shown_once(data: Dataset) -> None:
    recipe = toy("bert", "phases=[{length: 64}, {length: 64}, {objectives: {masked: {}}}]")
    assert distinct_phases(recipe) == [0, 2]


def test_a_page_is_self_contained_and_escaped(data: Dataset) -> None:
    with temporary_dataset(
        ["<b>Bold</b> & brave. " * 3 + "It is <i>so</i>."], data.tokenizer
    ) as short_data:
        page = render_page([trace_sequence(limit_to_data(toy("bert"), short_data), short_data, 0)])
    assert "http" not in page
    assert "<script" not in page
    assert "<b>" not in page
    assert page.count("<tr>") > 10


def test_a_missing_sequence_or_phase_is_reported(data: Dataset) -> None:
    with pytest.raises(UserError, match="there is no sequence"):
        trace_sequence(toy("bert"), data, 0, sequence=10**6)
    with pytest.raises(UserError, match="xlnet has 1, counted"):
        trace_sequence(toy("xlnet"), data, 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, data: Dataset) -> Path:
    folder = tmp_path_factory.mktemp("traced") / "model"
    model = Model.build(toy("bert"), data.tokenizer.vocab_size)
    TextModel(model, data.tokenizer).save(folder)
    return folder


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, ["trace", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_traces_a_text_a_data_set_and_a_model(
    data: Dataset, folder: Path, tmp_path: Path
) -> None:
    plain = invoke("spanbert-tiny", "--text", TEXT)
    assert "\x1b" not in plain
    assert "masked: " in plain
    assert "span-boundary: " in plain
    output = json.loads(invoke("bert-tiny", "--data", data.path, "--phase", 0, "--json"))
    (phase,) = output["phases"]
    assert len(phase["tokens"]) == 128
    html = tmp_path / "trace.html"
    assert invoke("--model", folder, "--text", TEXT, "--html", html, "--top-k", 2) == ""
    assert "correct: " in html.read_text()
    output = json.loads(invoke("--model", folder, "--text", stories(1)[0], "--json"))
    target = next(t for token in output["phases"][0]["tokens"] for t in token["targets"])
    assert target["predictions"][0].keys() == {"label", "probability"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bert-tiny",), "trace needs either --text or --data"),
        (("bert-tiny", "--text", " "), "contains no word"),
        (("bert-tiny", "--text", ""), "contains no word"),
        (
            ("bert-tiny", "--text", TEXT, "--sequence", 70),
            "there is no sequence 70: the text has 1",
        ),
        (("bert-tiny", "--text", TEXT, "--phase", 7), "there is no phase 7: bert-tiny has 2"),
        (("bert4rec-tiny", "--text", TEXT), "items are not learned from text"),
        (
            ("nothing", "--text", TEXT),
            r"there is no recipe 'nothing' \(known: albert-\*, .*bert-\*",
        ),
    ],
)
def test_a_mistake_is_reported(words: tuple[object, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        invoke(*words)
