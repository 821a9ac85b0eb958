"""The block schedule: which parameters move when, and at which learning rate."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from bertwright.compression.distillation.losses.layers import interval_index
from bertwright.compression.distillation.recipe import DistillationRecipe
from bertwright.compression.distillation.stages import BlockSchedule, stage_at
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.token_tensors import TokenInfo
from bertwright.training.clock import Progress, TrainingClock
from bertwright.training.pretraining.losses import PretrainingLosses
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.pretraining_batches import PretrainingBatches
from small_recipe import small
from toy_recipes import shaken

BLOCKS, STEPS_PER_BLOCK = 3, 2
BODY = (
    "encoder.embeddings.width=16",
    "encoder.initialisation={kind: width-aware}",
    "encoder.mixer.dropout=0",
    "encoder.dropout=0",
    "phases=[{}]",
    "assembly.length=16",
    "batch_tokens=64",
    "max_grad_norm=null",
)
STUDENT = ("encoder.bottleneck.width=16", "encoder.mixer.head_width=8", *BODY)
TEACHER = ("encoder.bottleneck.width=64", "encoder.mixer.head_width=32", *BODY)
DEEP = f"encoder.depth.layers={BLOCKS}"


@pytest.fixture(scope="module")
def teacher(data: Dataset) -> TextModel:
    recipe = fit_recipe_to_data(small("ib-bert", *TEACHER, DEEP), data)
    model = shaken(Model.build(recipe, data.tokenizer.vocab_size), 0.05)
    return TextModel(model, data.tokenizer, "float32")


def progressive(fractions: tuple[int, int] = (BLOCKS, 1)) -> DistillationRecipe:
    recipe = DistillationRecipe.load("mobile-progressive")
    stages = [
        stage.model_copy(update={"fraction": float(fraction)})
        for stage, fraction in zip(recipe.stages, fractions, strict=True)
    ]
    return recipe.model_copy(update={"stages": tuple(stages)})


def block_of(name: str) -> int | None:
    return int(name.split(".")[2]) if name.startswith("encoder.blocks.") else None


def test_only_current_and_finished_blocks_move(
    data: Dataset, teacher: TextModel, tmp_path: Path
) -> None:
    num_steps = BLOCKS * STEPS_PER_BLOCK
    steps = ("steps=8", "checkpoint_every=1", "checkpoints_kept=99", "schedule=1")
    recipe = small("mobilebert", *STUDENT, DEEP, *steps)
    pretrain(
        recipe, data, tmp_path / "out", distillation=progressive().distillation(teacher), quiet=True
    )
    first = Model.build(fit_recipe_to_data(recipe, data), data.tokenizer.vocab_size).state_dict()
    copied = {name: tensor.cpu() for name, tensor in teacher.model.state_dict().items()}
    initial = {n: t if block_of(n) is not None else copied[n] for n, t in first.items()}
    files = sorted((tmp_path / "out" / "checkpoints").glob("*/parameters.safetensors"))
    assert len(files) == 8
    for step, (before, after) in enumerate(pairwise([initial, *map(load_file, files)])):
        for name, tensor in before.items():
            block, current = block_of(name), step // STEPS_PER_BLOCK
            moved = not torch.equal(tensor, after[name])
            moves = step >= num_steps or (block is not None and block <= current)
            assert moved == moves, (step, name)


def test_equal_widths_need_no_projection(data: Dataset, teacher: TextModel) -> None:
    student = Model.build(
        fit_recipe_to_data(small("mobilebert", *STUDENT, DEEP), data), data.tokenizer.vocab_size
    )
    student_widths = student.recipe.encoder.hidden_widths
    assert len(set(student_widths + teacher.model.recipe.encoder.hidden_widths)) == 1
    loss = progressive().distillation(teacher).build_loss(student, data)
    assert list(loss.parameters()) == []


@given(
    st.integers(1, 12), st.integers(1, 40), st.floats(0, 1), st.integers(0, 10**6), st.floats(0, 2)
)
def test_learning_rates_are_a_sawtooth(
    blocks: int, steps: int, finished: float, number: int, height: float
) -> None:
    schedule = BlockSchedule.model_validate(
        {
            "learning_rate_scale": {"kind": "linear", "from": 0, "to": height},
            "finished_scale": finished,
        }
    )
    step = number % (blocks * steps)
    progress = TrainingClock(blocks * steps).progress(step)
    before, *scales, after = schedule.learning_rate_scales(
        blocks, progress.fraction, progress.midpoint
    )
    current = interval_index(progress.fraction, blocks)
    assert current == step // steps
    assert (before, after) == (0.0, 0.0)
    assert scales[current] == pytest.approx(height * (step % steps + 0.5) / steps)
    assert scales[:current] == [finished * scales[current]] * current
    assert not any(scales[current + 1 :])


def test_a_step_of_several_blocks_has_the_last_rate_of_its_first_block() -> None:
    schedule = BlockSchedule.model_validate(
        {"learning_rate_scale": {"kind": "linear", "from": 0, "to": 2}}
    )
    assert schedule.learning_rate_scales(4, 0.0, 0.5) == [0, 2, 0, 0, 0, 0]


@given(st.integers(2, 2000), st.data())
def test_stages_change_at_their_fractions(steps: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, steps - 1))
    stages = progressive((first, steps - first)).stages
    second = steps - first
    for step, expected_index, fraction, midpoint in [
        (0, 0, 0.0, 0.5 / first),
        (first - 1, 0, (first - 1) / first, (first - 0.5) / first),
        (first, 1, 0.0, 0.5 / second),
        (steps - 1, 1, (second - 1) / second, (second - 0.5) / second),
        (steps, 1, 1.0, 1.0),
    ]:
        index, progress = stage_at(stages, TrainingClock(steps).progress(step))
        assert (index, progress.fraction) == (expected_index, pytest.approx(fraction, abs=1e-6))
        assert progress.midpoint == pytest.approx(midpoint, abs=1e-6)


@pytest.mark.processor
def test_the_target_is_half_the_text_and_half_the_teacher(
    data: Dataset, teacher: TextModel
) -> None:
    recipe = fit_recipe_to_data(small("mobilebert", *STUDENT, DEEP), data)
    student = shaken(Model.build(recipe, data.tokenizer.vocab_size), 0.05)
    loss = progressive().distillation(teacher).build_loss(student, data)
    progress = Progress(0, 0.9)
    step = loss.prepare_step(PretrainingBatches(recipe, data)(progress), progress)
    [batch], counts = step.micro_batches, step.loss_counts
    losses = PretrainingLosses(recipe, student, distillation_loss=loss)(batch, progress)
    weights = {"masked": loss.objective_scale(progress), **loss.loss_weights(progress)}
    total = sum(weight * losses[n].sum / counts[n] for n, weight in weights.items())
    targets, token_ids = batch.targets["masked"], torch.from_numpy(batch.token_ids).long()
    document_ids = torch.from_numpy(batch.token_info.document_ids).long()
    segment_ids = torch.from_numpy(batch.token_info.segment_ids).long()
    token_info = TokenInfo(
        torch.arange(token_ids.shape[1])[None], document_ids=document_ids, segment_ids=segment_ids
    )
    logs = []
    for model in (student, teacher.model):
        states = model(token_ids, token_info)
        logs.append(model.logits(states.flatten(0, 1)[targets.positions]).log_softmax(-1))
    student_log, teacher_log = logs
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(targets.labels), student_log.shape[-1])
    mixed = 0.5 * one_hot + 0.5 * teacher_log.exp()
    entropy = 0.5 * (teacher_log.exp() * teacher_log).sum(-1)
    weight = torch.from_numpy(targets.weights)
    expected = ((entropy - (mixed * student_log).sum(-1)) * weight).sum()
    torch.testing.assert_close(total, expected / counts["masked"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("encoder.width=64",), "the teacher's hidden size between its blocks"),
        (("encoder.depth.sharing=all",), "parameters of their own"),
        (("encoder.embeddings.width=12",), "choose the same embeddings"),
        (("output={kind: tied, activation: relu}",), "choose the same embeddings"),
    ],
)
def test_unsuitable_students_are_refused(
    data: Dataset, teacher: TextModel, changes: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    recipe = small("mobilebert", *STUDENT, DEEP, *changes)
    with pytest.raises(UserError, match=message):
        pretrain(
            recipe,
            data,
            tmp_path / "o",
            distillation=progressive().distillation(teacher),
            quiet=True,
        )
    assert not (tmp_path / "o").exists()


def test_a_block_schedule_needs_all_layer_pairs(data: Dataset, teacher: TextModel) -> None:
    settings = progressive().model_dump(mode="json", by_alias=True)
    settings["stages"][0]["losses"][0]["layers"] = {"embeddings": True}
    student = Model.build(
        fit_recipe_to_data(small("mobilebert", *STUDENT, DEEP), data), data.tokenizer.vocab_size
    )
    recipe = DistillationRecipe.model_validate(settings)
    with pytest.raises(UserError, match="one teacher layer for every block"):
        recipe.distillation(teacher).build_loss(student, data)
