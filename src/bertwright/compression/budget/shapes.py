"""Shapes that a model can be pruned to: layers, and a fraction of their heads and units."""

from dataclasses import dataclass

from bertwright.compression.initial_student import require_supported
from bertwright.compression.method import CompressionMethod
from bertwright.compression.pruning.importance import (
    StructuredPruning,
    first_subnetwork,
    prune_fine_tuned,
)
from bertwright.compression.pruning.layers import (
    prune_config_layers,
    prune_model_layers,
    select_layers,
)
from bertwright.compression.task_loss import example_batches, mean_loss
from bertwright.core.messages import count_noun
from bertwright.core.rng import sample
from bertwright.tasks.adapters import FullFineTuningConfig
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task_model import TaskModel

KEPT_FRACTIONS = (1.0, 0.75, 0.5, 0.25)
"""Fractions of heads and units that may be kept."""

MAX_EXAMPLES, BATCH_SIZE = 512, 32
"""Number of examples used to measure importance and loss, and batch size."""


@dataclass(frozen=True)
class ModelShape:
    """A number of layers, and the fraction of their heads and units to keep."""

    num_layers: int
    kept_fraction: float = 1.0

    @property
    def name(self) -> str:
        """The shape, in words."""
        layers = count_noun(self.num_layers, "layer")
        if self.kept_fraction == 1:
            return layers
        return f"{layers}, {self.kept_fraction:.0%} of heads and units"


def full_shape(model: FineTunedModel) -> ModelShape:
    """Return the shape of a model."""
    return ModelShape(len(model.task_model.encoder.blocks))


def require_supported_shape(
    shape: ModelShape, model: FineTunedModel, method: CompressionMethod
) -> None:
    """Raise UserError if a model cannot be pruned to a shape, or if a method cannot train it."""
    encoder = model.task_model.recipe.encoder
    pruned = encoder
    if shape.num_layers < full_shape(model).num_layers:
        pruned = prune_config_layers(pruned, range(shape.num_layers))
    if shape.kept_fraction < 1:
        pruned = first_subnetwork(pruned, 1 - shape.kept_fraction).prune_config(pruned)
    require_supported(method, encoder, pruned)


def untrained_model(model: FineTunedModel, shape: ModelShape) -> FineTunedModel:
    """Return a model of this shape with arbitrary weights: its first heads and units."""
    if shape == full_shape(model):
        return model
    pruned = _prune_layers(model, shape.num_layers)
    if shape.kept_fraction == 1:
        return pruned
    encoder = pruned.task_model.recipe.encoder
    return prune_fine_tuned(pruned, first_subnetwork(encoder, 1 - shape.kept_fraction))


def prune_to_shape(model: FineTunedModel, shape: ModelShape, examples: Examples) -> FineTunedModel:
    """Return a model pruned to a shape, before training.

    It keeps evenly spaced layers and their most important heads and units.
    """
    pruned, fraction = _prune_layers(model, shape.num_layers), 1 - shape.kept_fraction
    if not fraction:
        return pruned
    pruning = StructuredPruning(heads=fraction, units=fraction, examples=MAX_EXAMPLES)
    return pruning.prune(pruned, examples)


def sampled_loss(model: FineTunedModel, examples: Examples) -> float:
    """Return the mean loss on a sample of examples."""
    return mean_loss(example_batches(model, sample(examples, MAX_EXAMPLES), BATCH_SIZE))


def _prune_layers(model: FineTunedModel, num_layers: int) -> FineTunedModel:
    model, depth = remove_fake_quantizers(model), len(model.task_model.encoder.blocks)
    if num_layers == depth:
        return model
    pruned = prune_model_layers(model.model, select_layers(num_layers, depth))
    net = TaskModel(
        pruned.recipe, pruned.vocab_size, model.task_model.head_spec, FullFineTuningConfig()
    )
    net.encoder.load_state_dict(pruned.encoder.state_dict())
    net.head.load_state_dict(model.task_model.head.state_dict())
    settings = model.task, model.example_encoder.max_length, model.precision, model.temperature
    return FineTunedModel(net, model.tokenizer, *settings)
