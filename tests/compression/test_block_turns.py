"""Block after block: what moves when, how fast, and by what."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from small_recipe import small

from bertwright.compression.lessons.block_turns import BlockTurns
from bertwright.compression.lessons.lessons import Lessons
from bertwright.compression.lessons.stages import within
from bertwright.compression.signals.by_layer import turn_of
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.shards import Data
from bertwright.training.clock import Clock, Place
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.run_folder import fitted
from recipes_at_toy_size import shaken

BLOCKS, STEPS_OF_A_TURN = 3, 2
BODY = (
    "encoder.embeddings.width=16",
    "encoder.initialisation={kind: width-aware}",
    "encoder.mixer.dropout=0",
    "encoder.dropout=0",
    "phases=[{}]",
    "assembly.length=16",
    "batch_tokens=64",
    "clip=null",
)
STUDENT = ("encoder.bottleneck.width=16", "encoder.mixer.head_width=8", *BODY)
TEACHER = ("encoder.bottleneck.width=64", "encoder.mixer.head_width=32", *BODY)
DEEP = f"encoder.depth.layers={BLOCKS}"


@pytest.fixture(scope="module")
def teacher(data: Data) -> TextModel:
    recipe = fitted(small("ib-bert", *TEACHER, DEEP), data)
    model = shaken(Model.build(recipe, data.tokenizer.size), 0.05)
    return TextModel(model, data.tokenizer, "float32")


def progressive(shares: tuple[int, int] = (BLOCKS, 1)) -> Lessons:
    lessons = Lessons.load("mobile-progressive")
    stages = [
        stage.model_copy(update={"share": float(share)})
        for stage, share in zip(lessons.stages, shares, strict=True)
    ]
    return lessons.model_copy(update={"stages": tuple(stages)})


def of_block(name: str) -> int | None:
    return int(name.split(".")[2]) if name.startswith("encoder.blocks.") else None


def test_a_block_moves_in_its_turn_and_behind_it_and_nothing_else_does(
    data: Data, teacher: TextModel, tmp_path: Path
) -> None:
    turns = BLOCKS * STEPS_OF_A_TURN
    steps = ("steps=8", "checkpoint_every=1", "checkpoints_kept=99", "schedule=1")
    recipe = small("mobilebert", *STUDENT, DEEP, *steps)
    pretrain(recipe, data, tmp_path / "out", teacher=progressive().of(teacher), quiet=True)
    first = Model.build(fitted(recipe, data), data.tokenizer.size).state_dict()
    theirs = {name: tensor.cpu() for name, tensor in teacher.model.state_dict().items()}
    begun = {n: t if of_block(n) is not None else theirs[n] for n, t in first.items()}
    files = sorted((tmp_path / "out" / "checkpoints").glob("*/parameters.safetensors"))
    assert len(files) == 8
    for step, (before, after) in enumerate(pairwise([begun, *map(load_file, files)])):
        for name, there in before.items():
            block, turn = of_block(name), step // STEPS_OF_A_TURN
            moved = not torch.equal(there, after[name])
            moves = step >= turns or (block is not None and block <= turn)
            assert moved == moves, (step, name)


def test_equal_bodies_need_no_map(data: Data, teacher: TextModel) -> None:
    student = Model.build(fitted(small("mobilebert", *STUDENT, DEEP), data), data.tokenizer.size)
    assert len(set(student.recipe.encoder.widths + teacher.model.recipe.encoder.widths)) == 1
    teaching = progressive().of(teacher).teaching(student, data)
    assert list(teaching.parameters()) == []


@given(
    st.integers(1, 12), st.integers(1, 40), st.floats(0, 1), st.integers(0, 10**6), st.floats(0, 2)
)
def test_rates_are_a_saw_tooth(
    blocks: int, steps: int, behind: float, drawn: int, height: float
) -> None:
    turns = BlockTurns.model_validate(
        {"rate": {"kind": "linear", "from": 0, "to": height}, "behind": behind}
    )
    step = drawn % (blocks * steps)
    place = Clock(blocks * steps).place(step)
    before, *rates, after = turns.rates(blocks, place.progress, place.middle)
    turn = turn_of(place.progress, blocks)
    assert turn == step // steps
    assert (before, after) == (0.0, 0.0)
    assert rates[turn] == pytest.approx(height * (step % steps + 0.5) / steps)
    assert rates[:turn] == [behind * rates[turn]] * turn
    assert not any(rates[turn + 1 :])


@given(st.integers(2, 2000), st.data())
def test_stages_meet_where_their_shares_say(steps: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, steps - 1))
    stages = progressive((first, steps - first)).stages
    for step, number, progress in [
        (0, 0, 0.0),
        (first - 1, 0, (first - 1) / first),
        (first, 1, 0.0),
        (steps - 1, 1, (steps - first - 1) / (steps - first)),
    ]:
        found, place = within(stages, Clock(steps).place(step))
        assert (found, place.progress) == (number, pytest.approx(progress, abs=1e-6))


@pytest.mark.processor
def test_half_of_the_target_is_the_text_and_half_the_teacher(
    data: Data, teacher: TextModel
) -> None:
    recipe = fitted(small("mobilebert", *STUDENT, DEEP), data)
    student = shaken(Model.build(recipe, data.tokenizer.size), 0.05)
    teaching = progressive().of(teacher).teaching(student, data)
    place = Place(0, 0.9)
    step = teaching.prepared(RecipeBatches(recipe, data)(place), place)
    [batch], counts = step.micro_batches, step.counts
    losses = RecipeLosses(recipe, student, teaching=teaching)(batch, place)
    weights = {"masked": teaching.share(place), **teaching.weights(place)}
    found = sum(weight * losses[n].sum / counts[n] for n, weight in weights.items())
    asked, pieces = batch.questions["masked"], torch.from_numpy(batch.pieces).long()
    document = torch.from_numpy(batch.coordinates.document).long()
    segment = torch.from_numpy(batch.coordinates.segment).long()
    logs = []
    for model in (student, teacher.model):
        place_of = torch.arange(pieces.shape[1])[None]
        states = model(pieces, Coordinates(place_of, document=document, segment=segment))
        logs.append(model.logits(states.flatten(0, 1)[asked.where]).log_softmax(-1))
    own, theirs = logs
    target = torch.nn.functional.one_hot(torch.from_numpy(asked.target), own.shape[-1])
    mixed = 0.5 * target + 0.5 * theirs.exp()
    known = 0.5 * (theirs.exp() * theirs).sum(-1)
    apart = ((known - (mixed * own).sum(-1)) * torch.from_numpy(asked.weight)).sum()
    torch.testing.assert_close(found, apart / counts["masked"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("encoder.width=64",), "as wide between its blocks"),
        (("encoder.depth.sharing=all",), "share their parameters"),
        (("encoder.embeddings.width=12",), "choose the same embeddings"),
        (("output={kind: tied, activation: relu}",), "choose the same embeddings"),
    ],
)
def test_who_cannot_take_turns_is_told_why(
    data: Data, teacher: TextModel, changes: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    recipe = small("mobilebert", *STUDENT, DEEP, *changes)
    with pytest.raises(UserError, match=said):
        pretrain(recipe, data, tmp_path / "o", teacher=progressive().of(teacher), quiet=True)
    assert not (tmp_path / "o").exists()


def test_turns_are_of_all_blocks(data: Data, teacher: TextModel) -> None:
    lessons = progressive().model_dump(mode="json", by_alias=True)
    lessons["stages"][0]["signals"][0]["layers"] = {"embeddings": True}
    student = Model.build(fitted(small("mobilebert", *STUDENT, DEEP), data), data.tokenizer.size)
    with pytest.raises(UserError, match="every block has one partner"):
        Lessons.model_validate(lessons).of(teacher).teaching(student, data)
