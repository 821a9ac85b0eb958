"""Layer pruning: students of two of four layers, by any selection and distillation."""

import numpy as np
import torch

from bertwright.compression.pruning.layers import (
    BATCH_SIZE,
    important_layers,
    layer_ablation_losses,
    prune_layers,
    prune_model_layers,
)
from bertwright.compression.task_loss import example_batches, mean_loss
from bertwright.encoder.encoder import Encoder
from bertwright.models.model import Model
from experiments.analyses.expecting import expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

TASK = "inference"


def run(toy: ToyModels) -> CheckResults:
    """Compare selections of the fine-tuned model's layers, pre-trained layers, and distillation."""
    yield from _drop_silent_layer(toy)
    teacher, data = toy.fine_tuned(TASK), toy.task_data(TASK, 2 * toy.size.few_examples)
    student = prune_layers(toy.pretrained, [0, 1])
    pretrained = toy.compress(teacher, "layer-drop", task_data=data, student=student)
    baseline = "the first two of the pre-trained model", pretrained.scores
    yield MeasuredValue("accuracy, teacher", [pretrained.teacher_score])
    yield from _important_layers(toy)
    for selection in ("first", "last", "even", "important"):
        settings = {"layer_selection": selection, "stages": [{}]}
        method = toy.write_method(f"c17-{selection}", settings)
        result = toy.compress(teacher, method, task_data=data, layers=2)
        yield MeasuredValue(f"accuracy, {selection} layers", result.scores, *baseline)
    for method in ("pkd-skip", "theseus-linear"):
        result = toy.compress(teacher, method, task_data=data, layers=2)
        yield MeasuredValue(f"accuracy, {method}", result.scores, *baseline)


def _important_layers(toy: ToyModels) -> CheckResults:
    """Check that a layer without effect has no importance, and is not selected."""
    model = toy.fine_tuned(TASK)
    _silence_layer(model.task_model.encoder, 1)
    examples = toy.evaluation_examples(TASK)
    losses = layer_ablation_losses(model, examples)
    expected_loss = mean_loss(example_batches(model, examples, BATCH_SIZE))
    yield expect_equal("loss without a layer that does nothing", losses[1], expected_loss, 1e-6)
    least = int(np.argmin(losses))
    expected = [layer for layer in range(4) if layer != least]
    yield expect_same("important layers", important_layers(model, examples, 3), expected)


def _drop_silent_layer(toy: ToyModels) -> CheckResults:
    """Check that removing a layer without effect changes no hidden state."""
    recipe = toy.recipe("encoder.norm.placement=pre")
    model = Model.build(recipe, toy.data.tokenizer.vocab_size).double()
    _silence_layer(model.encoder, 1)
    pruned = prune_model_layers(model, [0, 2, 3])
    token_ids = torch.randint(5, 90, (3, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = [m.encoder.double()(token_ids).numpy() for m in (model, pruned)]
    yield expect_equal("states without a layer that does nothing", states[0], states[1], 1e-6)
    yield expect_same("layers left", len(pruned.recipe.encoder.depth.sublayer_orders()), 3)


@torch.no_grad()
def _silence_layer(encoder: Encoder, layer: int) -> None:
    """Set the outputs of a layer's sublayers to 0."""
    for last in ("attention.output", "feed_forward.down"):
        for parameter in encoder.blocks[layer].get_submodule(f"sublayers.{last}").parameters():
            parameter.zero_()


CHECK = CompressionCheck(
    "C17",
    "layer-drop",
    "Which layers should be kept, and is distillation worth it?",
    "Sajjad et al. 2020",
    run,
)
