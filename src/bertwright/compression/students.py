"""Students that are made of their teachers: some of the layers."""

from collections.abc import Sequence
from typing import Literal

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.depth import Repeated
from bertwright.errors import UserError
from bertwright.model.folder import filled
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel

Taken = Literal["first", "last", "even"]


def require_layers(number: int, of: int) -> None:
    """Errors: UserError where so many cannot be taken."""
    if not of:
        raise UserError(
            "the model has no layers of which some could be taken: name another student, or make "
            "it smaller with trim"
        )
    if not 1 <= number <= of:
        raise UserError(f"{number} of {of} layers cannot be taken: choose from 1 to {of}")


def usual_layers(depth: int) -> int:
    """How many are taken where nobody has said so: half."""
    return max(depth // 2, 1)


def layers_taken(number: int, of: int, taken: Taken = "even") -> list[int]:
    """Which so many of the layers are taken, counted from 0: the first, the last, or evenly from
    the first to the last (Sanh et al. 2019)."""
    require_layers(number, of)
    if taken == "first":
        return list(range(number))
    if taken == "last":
        return list(range(of - number, of))
    if number == 1:
        return [0]
    return [round(n * (of - 1) / (number - 1)) for n in range(number)]


def shortened(model: TextModel, layers: Sequence[int]) -> TextModel:
    """A model of these layers of another, its embeddings and its output over the vocabulary.

    Errors: UserError for an encoder whose blocks are not alike or share their parameters.
    """
    return TextModel(with_layers(model.model, layers), model.tokenizer, model.precision)


def with_layers(model: Model, layers: Sequence[int]) -> Model:
    """As :func:`shortened`, of a model alone."""
    recipe = model.recipe
    small = shorter(recipe.encoder, layers)
    known: dict[str, int] = {f"encoder.blocks.{old}.": new for new, old in enumerate(layers)}
    weights = {}
    for name, tensor in model.state_dict().items():
        block = next((prefix for prefix in known if name.startswith(prefix)), None)
        if block is not None:
            weights[f"encoder.blocks.{known[block]}.{name.removeprefix(block)}"] = tensor
        elif not name.startswith("encoder.blocks."):
            weights[name] = tensor
    left = recipe.model_copy(update={"encoder": small})
    return filled(left, model.vocabulary_size, weights, recipe.name)


def shorter(choice: EncoderChoice, layers: Sequence[int]) -> EncoderChoice:
    """The choice of these layers of an encoder.

    Errors: UserError for one whose blocks are not alike or share their parameters.
    """
    depth = choice.depth
    if not isinstance(depth, Repeated) or depth.sharing != "none" or choice.local is not None:
        raise UserError(
            "layers can be taken of a stack whose blocks are alike and share nothing: here "
            "encoder.depth and encoder.local say otherwise"
        )
    cut = choice.cut
    if cut is not None:
        left = {
            name: None if sizes is None else tuple(sizes[n] for n in layers)
            for name, sizes in (("heads", cut.heads), ("units", cut.units))
        }
        cut = cut.model_copy(update=left)
    try:
        return choice.changed(
            "encoder", depth=depth.model_copy(update={"layers": len(layers)}), cut=cut
        )
    except ValueError as error:
        raise UserError(str(error)) from error
