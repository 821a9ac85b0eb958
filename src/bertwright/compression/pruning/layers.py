"""Layer pruning: students that consist of some layers of their teacher."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bertwright.compression.task_loss import example_batches, mean_loss
from bertwright.core.errors import UserError
from bertwright.core.rng import sample
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import RepeatedBlocksConfig
from bertwright.models.model import Model
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.text_encoder import ENCODER_ONLY

LayerStrategy = Literal["first", "last", "even"]


def require_layers(num_layers: int, num_available: int) -> None:
    """Raise UserError unless this number of layers can be kept."""
    if not num_available:
        raise UserError(
            "the model has no layers to keep: name another student, or make it smaller with "
            "vocab prune"
        )
    if not 1 <= num_layers <= num_available:
        raise UserError(
            f"{num_layers} of {num_available} layers cannot be kept: choose from 1 to "
            f"{num_available}"
        )


def default_num_layers(depth: int) -> int:
    """Return the default number of layers to keep: half of them."""
    return max(depth // 2, 1)


def select_layers(
    num_layers: int, num_available: int, strategy: LayerStrategy = "even"
) -> list[int]:
    """Return the indices of the layers to keep: first, last, or evenly spaced ones.

    Evenly spaced ones include the first and the last (Sanh et al. 2019).
    """
    require_layers(num_layers, num_available)
    if strategy == "first":
        return list(range(num_layers))
    if strategy == "last":
        return list(range(num_available - num_layers, num_available))
    if num_layers == 1:
        return [0]
    return [round(n * (num_available - 1) / (num_layers - 1)) for n in range(num_layers)]


def prune_layers(model: TextModel, layers: Sequence[int]) -> TextModel:
    """Return a model with some layers of another one, with its embeddings and LM head.

    A decoder and a generator, whose depth follows the encoder's, are left out with all objectives.
    Raises UserError for an encoder whose blocks differ in kind or share their parameters.
    """
    return TextModel(prune_model_layers(model.model, layers), model.tokenizer, model.precision)


def prune_model_layers(model: Model, layers: Sequence[int]) -> Model:
    """Prune the layers of a model without a tokenizer, like :func:`prune_layers`."""
    recipe, tensors = model.recipe, model.state_dict()
    encoder = prune_config_layers(recipe.encoder, layers)
    if added := [name for name in tensors if "adapters." in name]:
        raise UserError(
            f"this model has adapters ({added[0]}), without which its layers compute something "
            f"else: fine-tune a model with another adaptation"
        )
    has_generator = any(o.capabilities.is_generator for o in recipe.objectives.values())
    if recipe.decoder is not None or has_generator:
        recipe = recipe.model_copy(update=ENCODER_ONLY)
        tensors = {name: t for name, t in tensors.items() if name.startswith("encoder.")}
    new_index: dict[str, int] = {f"encoder.blocks.{old}.": new for new, old in enumerate(layers)}
    weights = {}
    for name, tensor in tensors.items():
        block = next((prefix for prefix in new_index if name.startswith(prefix)), None)
        if block is not None:
            weights[f"encoder.blocks.{new_index[block]}.{name.removeprefix(block)}"] = tensor
        elif not name.startswith("encoder.blocks."):
            weights[name] = tensor
    pruned_recipe = recipe.model_copy(update={"encoder": encoder})
    return model_from_tensors(pruned_recipe, model.vocab_size, weights, recipe.name)


def prune_config_layers(config: EncoderConfig, layers: Sequence[int]) -> EncoderConfig:
    """Return the config of an encoder with only these layers.

    Raises UserError for an encoder whose blocks differ in kind or share their parameters.
    """
    depth = config.depth
    if (
        not isinstance(depth, RepeatedBlocksConfig)
        or depth.sharing != "none"
        or config.sliding_window is not None
        or config.value_embeddings is not None
        or len({*config.hidden_widths[1:]}) > 1
    ):
        raise UserError(
            "layers can be kept of a stack whose blocks are alike and share no parameters: choose "
            "a model without encoder.sliding_window and encoder.value_embeddings, with blocks of "
            "equal width, and with another encoder.depth"
        )
    _require_inputs_kept(config, layers)
    pruned_sizes = config.pruned_sizes
    if pruned_sizes is not None:
        kept = {
            name: None if sizes is None else tuple(sizes[n] for n in layers)
            for name, sizes in (("heads", pruned_sizes.heads), ("units", pruned_sizes.units))
        }
        pruned_sizes = pruned_sizes.model_copy(update=kept)
    try:
        return config.copy_with(
            "encoder",
            depth=depth.model_copy(update={"layers": len(layers)}),
            pruned_sizes=pruned_sizes,
            residual=config.residual.with_blocks(layers),
            visibility=config.visibility.with_blocks(layers),
            norm=config.norm.with_blocks(layers),
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def _require_inputs_kept(config: EncoderConfig, layers: Sequence[int]) -> None:
    """Raise UserError if a kept layer would read fewer outputs, or others of another width."""
    is_first = list(layers) == list(range(len(layers)))
    if config.residual.needs_sublayer_outputs and not is_first:
        raise UserError(
            "every layer of this encoder reads the outputs of all layers before it, so only the "
            "first layers can be kept: choose a method with layer_selection: first"
        )
    if layers[0] != 0 and config.hidden_widths[0] != config.hidden_widths[1]:
        raise UserError(
            f"the first layer of this encoder reads {config.hidden_widths[0]} channels and the "
            f"others {config.hidden_widths[1]}, so it must be kept: choose a method with "
            f"layer_selection: first or even"
        )


MAX_EXAMPLES, BATCH_SIZE = 512, 32
"""Maximum number of examples to evaluate without each layer, and batch size."""


def important_layers(model: FineTunedModel, examples: Examples, num_layers: int) -> list[int]:
    """Return the indices, in ascending order, of the layers whose removal raises the loss most.

    Kovaleva et al. (2019, section 4.6) make the attention of a layer uniform; here it is skipped.

    Raises UserError if the model has fewer layers.
    """
    require_layers(num_layers, len(model.task_model.encoder.blocks))
    losses = layer_ablation_losses(model, sample(examples, MAX_EXAMPLES))
    return sorted(np.argsort(losses, kind="stable")[::-1][:num_layers].tolist())


def layer_ablation_losses(model: FineTunedModel, examples: Examples) -> list[float]:
    """Return the mean loss on the examples when each layer in turn is skipped."""
    batches, losses = example_batches(model, examples, BATCH_SIZE), list[float]()
    for layer in range(len(model.task_model.encoder.blocks)):
        with model.task_model.encoder.skip_block(layer):
            losses.append(mean_loss(batches))
    return losses
