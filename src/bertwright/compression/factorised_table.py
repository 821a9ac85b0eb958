"""The tables of a trained encoder in two factors (Lan et al. 2020, section 3.1)."""

import torch
from torch import Tensor

from bertwright.compression.projected_table import main_axes
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.embeddings import Factorised, Pieces
from bertwright.encoder.norms import LayerNorm, LayerNormChoice
from bertwright.encoder.positions import Learned
from bertwright.errors import UserError
from bertwright.model.folder import filled
from bertwright.model.model import Model
from bertwright.tasks.fine_tuned import BARE


@torch.no_grad()
def factorised(model: Model, width: int) -> Model:
    """The encoder of a model, with tables so wide and a matrix that leads what is added up there to
    the width of its states.

    The tables are those of the plane in which all that is added up varies most (truncated singular
    value decomposition). A norm behind the sum divides by the length of what it is given, which is
    the same at either width, and takes off a mean: that of the wide vectors is taken off before,
    and the narrow ones are turned so that theirs is 0, which costs one of their numbers. So nothing
    changes where the plane holds all of the tables.

    Errors: UserError for embeddings that are no sum of tables, or not as wide.
    """
    choice, encoder = model.recipe.encoder, model.encoder
    left = model.recipe.model_copy(update={**BARE, "encoder": _narrow(choice, width)})
    tables = {n: t.double() for n, t in encoder.embeddings.named_parameters() if t.ndim == 2}
    rows = torch.cat(list(tables.values()))
    if choice.embeddings.norm:
        rows -= rows.mean(1, keepdim=True)
        axes = main_axes(rows, width - 1) @ _without_mean(width).to(rows)
    else:
        axes = main_axes(rows, width)
    parts = (rows @ axes).split([len(table) for table in tables.values()])
    found: dict[str, Tensor] = dict(zip(tables, parts, strict=True))
    norm = encoder.embeddings.join.norm
    gain, bias = torch.ones(choice.width).to(rows), torch.zeros(choice.width).to(rows)
    if isinstance(norm, LayerNorm):
        gain = gain if norm.weight is None else norm.weight.double()
        bias = bias if norm.bias is None else norm.bias.double()
        gain = gain * (choice.width / width) ** 0.5
        found |= {f"join.norm.{name}": _plain(name, width) for name, _ in norm.named_parameters()}
    found |= {"up.weight": gain[:, None] * axes, "up.bias": bias}
    weights = {f"encoder.{name}": tensor for name, tensor in encoder.named_parameters()}
    weights = {n: t for n, t in weights.items() if not n.startswith("encoder.embeddings.")}
    weights |= {f"encoder.embeddings.{name}": tensor.float() for name, tensor in found.items()}
    return filled(left, model.vocabulary_size, weights, left.name)


def _narrow(choice: EncoderChoice, width: int) -> EncoderChoice:
    own = choice.embeddings
    summed = isinstance(choice.positions, Learned) or not choice.positions.added
    plain = isinstance(own, Pieces) and not own.scaled and not own.asking and choice.num_parts == 1
    normed = isinstance(choice.norm, LayerNormChoice) or not own.norm
    if not (plain and summed and normed) or choice.entry_width != choice.width:
        raise UserError(
            "tables become narrower where embeddings are a sum of learned ones, and what stands "
            "behind it is a layernorm or nothing: leave narrower out"
        )
    if not 2 <= width < choice.width:
        raise UserError(f"tables {width} wide are not narrower than {choice.width}: ask for others")
    stated = {n: v for n, v in dict(own).items() if n in Factorised.model_fields and n != "kind"}
    try:
        return choice.changed("encoder", embeddings=Factorised(**stated, width=width))
    except ValueError as error:
        raise UserError(str(error)) from error


def _without_mean(width: int) -> Tensor:
    """Orthonormal vectors (width - 1, width) whose mean is 0."""
    ones = torch.ones(width, 1, dtype=torch.float64)
    first = torch.cat((ones, torch.eye(width, dtype=torch.float64)[:, 1:]), 1)
    return torch.linalg.qr(first).Q[:, 1:].T


def _plain(name: str, width: int) -> Tensor:
    return torch.ones(width) if name == "weight" else torch.zeros(width)
