"""Layer importance: the loss without a layer is that of a model without it."""

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.compression.distillation.transfer import TransferSets
from bertwright.compression.initial_student import student_factory
from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning.layers import (
    default_num_layers,
    important_layers,
    layer_ablation_losses,
    prune_config_layers,
    prune_model_layers,
    require_layers,
    select_layers,
)
from bertwright.compression.pruning.structured import Subnetwork
from bertwright.compression.task_loss import example_batches, losses_and_counts
from bertwright.core.errors import UserError
from bertwright.models.model import Model
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task_model import TaskModel
from bertwright.testing.toy import toy_tokens
from small_encoders import Pretrained
from small_tasks import classes
from toy_recipes import VOCABULARY, shaken, toy

LAYERS = 3


@pytest.fixture
def teacher(pretrained: Pretrained) -> FineTunedModel:
    model = pretrained("bert", f"encoder.depth.layers={LAYERS}")
    task, examples = table_task("age", Columns()), classes()
    settings = {
        "learning_rate": 3e-3,
        "epochs": 2,
        "batch_size": 8,
        "compile": False,
        "precision": "float32",
    }
    return finetune(model, task, train=examples, dev=examples, **settings).model


def without_layer(model: FineTunedModel, layer: int) -> FineTunedModel:
    pruned = prune_model_layers(model.model, [n for n in range(LAYERS) if n != layer])
    net = TaskModel(pruned.recipe, pruned.vocab_size, model.task_model.head_spec)
    net.encoder = pruned.encoder
    net.head.load_state_dict(model.task_model.head.state_dict())
    length = model.example_encoder.max_length
    return FineTunedModel(net, model.tokenizer, model.task, length, "float32")


def test_ablation_losses_are_those_of_pruned_models(teacher: FineTunedModel) -> None:
    examples = classes()
    losses = layer_ablation_losses(teacher, examples)
    for layer, loss in enumerate(losses):
        batches = example_batches(without_layer(teacher, layer), examples, 8)
        sums, counts = losses_and_counts(batches)
        assert loss == pytest.approx(sums.sum() / counts.sum(), rel=1e-5)
    assert len(set(losses)) == LAYERS
    order = np.argsort(losses).tolist()
    assert important_layers(teacher, examples, 1) == order[-1:]
    assert important_layers(teacher, examples, 2) == sorted(order[-2:])


def test_a_student_has_the_important_layers(
    teacher: FineTunedModel, pretrained: Pretrained, tmp_path
) -> None:
    method = CompressionMethod.load("layer-drop-needed")
    sets = TransferSets(teacher, classes(), None, tmp_path)
    student = student_factory(teacher, None, 1, method, sets)(0)
    (layer,) = important_layers(teacher, classes(), 1)
    weights = prune_model_layers(teacher.model, [layer]).state_dict()
    assert all(weights[name].equal(w) for name, w in student.model.state_dict().items())
    with pytest.raises(UserError, match="and the student has 2"):
        student_factory(teacher, pretrained(), 1, method, sets)


def test_a_layer_keeps_its_pruned_sizes() -> None:
    config = toy("bert", "encoder.depth.layers=3").encoder
    for subnetwork, heads, units in [
        (Subnetwork([[0], [0, 1], [1]]), (1, 2), None),
        (Subnetwork(units=[[0], [3], [1, 2]]), None, (1, 2)),
    ]:
        sizes = prune_config_layers(subnetwork.prune_config(config), [0, 2]).pruned_sizes
        kept = prune_config_layers(subnetwork.prune_config(config), [0, 1]).pruned_sizes
        assert sizes is not None
        assert kept is not None
        assert (sizes.units, kept.heads) == (units, heads)


@pytest.mark.parametrize(
    ("system", "changes"),
    [
        ("albert", ()),
        ("bert", ("encoder.value_embeddings.tables=1",)),
        ("bert", ("encoder.sliding_window={window: 8}",)),
        ("universal-transformer", ()),
        ("awd-lstm", ("encoder.depth.layers=2",)),
    ],
)
def test_layers_that_are_not_alike_are_kept(system: str, changes: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match="whose blocks are alike and share no parameters"):
        prune_config_layers(toy(system, *changes).encoder, [0])


def test_half_of_the_layers_are_kept_and_at_least_one() -> None:
    assert [default_num_layers(depth) for depth in (1, 2, 3, 12)] == [1, 1, 1, 6]
    assert select_layers(1, 12) == [0]
    assert select_layers(2, 12) == [0, 11]
    assert select_layers(12, 12) == list(range(12))
    for number in (0, 13):
        with pytest.raises(UserError, match=f"{number} of 12 layers cannot be kept"):
            require_layers(number, 12)
    with pytest.raises(UserError, match="the model has no layers to keep"):
        require_layers(1, 0)


@pytest.mark.parametrize("system", ["bert", "electra", "t5", "performer", "transformer-xl"])
def test_kept_layers_are_those_of_the_model(system: str) -> None:
    model = shaken(Model.build(toy(system, f"encoder.depth.layers={LAYERS}"), VOCABULARY), 0.1)
    pruned = prune_model_layers(model, [0, 2])
    weights = model.encoder.state_dict()
    for name, tensor in pruned.encoder.state_dict().items():
        assert torch.equal(tensor, weights[name.replace("blocks.1.", "blocks.2.")]), name
    follows_depth = system in ("electra", "t5")
    assert bool(pruned.recipe.objectives) == (not follows_depth)
    assert pruned.recipe.decoder is None


@pytest.mark.parametrize("layers", [[1], [0, 2], [1, 2]])
@pytest.mark.parametrize(
    "system", ["bert", "bigbird", "elmo", "longformer-char", "modern", "reformer", "transformer-xl"]
)
def test_kept_layers_compute_what_they_did(system: str, layers: list[int]) -> None:
    model = shaken(Model.build(toy(system, f"encoder.depth.layers={LAYERS}"), VOCABULARY), 0.1)
    pruned, token_ids = prune_model_layers(model.eval(), layers).eval(), toy_tokens(2)
    with ExitStack() as skipped, torch.no_grad():
        for layer in {*range(LAYERS)} - {*layers}:
            skipped.enter_context(model.encoder.skip_block(layer))
        torch.testing.assert_close(pruned.encoder(token_ids), model.encoder(token_ids))


@pytest.mark.parametrize(
    ("system", "layers", "expected"),
    [
        ("gpt-bert", [0, 2], "only the first layers can be kept"),
        ("bilstm-student", [1, 2], "reads 48 channels and the others 32, so it must be kept"),
    ],
)
def test_layers_are_refused_without_their_inputs(
    system: str, layers: list[int], expected: str
) -> None:
    config = toy(system, f"encoder.depth.layers={LAYERS}").encoder
    assert len(prune_config_layers(config, [0, 1]).depth.sublayer_orders()) == 2
    with pytest.raises(UserError, match=expected):
        prune_config_layers(config, layers)


def test_blocks_of_different_widths_are_refused() -> None:
    model = Model.build(toy("awd-lstm", f"encoder.depth.layers={LAYERS}"), VOCABULARY)
    with pytest.raises(UserError, match="blocks of equal width"):
        prune_model_layers(model, [0, 2])


@pytest.mark.parametrize("kind", ["adapters", "knowledge-adapters"])
def test_layers_of_models_with_adapters_are_refused(pretrained: Pretrained, kind: str) -> None:
    examples, task = classes(), table_task("age", Columns())
    settings: dict[str, Any] = {"epochs": 0, "adaptation": {"kind": kind}, "compile": False}
    model = finetune(pretrained(), task, train=examples, dev=examples, **settings).model
    with pytest.raises(UserError, match=r"this model has adapters \(encoder"):
        prune_model_layers(model.model, [0])
