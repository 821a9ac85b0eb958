"""Heads and units that are cut out of an encoder, against the same ones behind closed gates."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import torch

from bertwright.analysis.planted.expecting import Expected, above, equal, same
from bertwright.compression.surgery import Kept, cut_weights
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.recipes import Recipe
from bertwright.recipes.loading import systems
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

VOCABULARY, QUICK_SYSTEMS = 60, ("bert", "modern", "gpt-2", "albert")
HEADS, UNITS = (1,), (0, 3, 4, 100)
"""That stay in every block, of two heads and a hundred units or more."""


def run(ground: Ground) -> Came:
    """Every system at 2x128, with noise in every parameter, in float64."""
    refused: list[str] = []
    asked = QUICK_SYSTEMS if ground.quick else systems()
    for system in asked:
        recipe = Recipe.load(f"{system}-tiny")
        kept = Kept([HEADS] * 2, [UNITS] * 2)
        try:
            left = kept.cut(recipe.encoder)
        except UserError as error:
            refused.append(f"{system} ({error})")
            continue
        yield _cut(system, recipe, kept, left)
    yield from _in_any_order()
    yield above("systems that were cut", len(asked) - len(refused), 1)
    yield Measured(f"systems that say why not: {'; '.join(refused) or 'none'}", [len(refused)])


def _cut(system: str, recipe: Recipe, kept: Kept, left: EncoderChoice) -> Expected:
    """The greatest difference at real places, of rows of which the first is padded."""
    encoder = _shaken(recipe)
    small = Encoder(left, VOCABULARY).double().eval()
    small.load_state_dict(cut_weights(encoder.state_dict(), recipe.encoder, kept, prefix=""))
    pieces = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    real = torch.ones_like(pieces)
    real[0, 15:] = 0
    coordinates = replace(Coordinates.plain(pieces), document=real - 1)
    with torch.no_grad():
        found = small(pieces, coordinates)
        with _gated(encoder):
            wanted = encoder(pieces, coordinates)
    return equal(f"{system}, cut against gated", found[real > 0], wanted[real > 0], 1e-12)


def _shaken(recipe: Recipe) -> Encoder:
    """Drawn, and moved by noise: no bias is 0, no gain 1."""
    encoder = Model.build(recipe, VOCABULARY).encoder.double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.05 * noise)
    return encoder


def _gated(encoder: Encoder) -> ExitStack:
    """All but those that stay, behind gates of 0."""
    stack = ExitStack()
    for block, sublayers in enumerate(encoder.blocks):
        heads = torch.zeros(encoder.heads, 1, 1, dtype=torch.float64)
        heads[list(HEADS)] = 1
        inner = sublayers.get_submodule("sublayers.feed_forward.down").in_features
        assert isinstance(inner, int), "a linear map knows its width"
        units = torch.zeros(inner, dtype=torch.float64)
        units[list(UNITS)] = 1
        stack.enter_context(encoder.gate({f"blocks.{block}.attention.context": heads}))
        stack.enter_context(encoder.gate({f"blocks.{block}.feed_forward.activation": units}))
    return stack


def _in_any_order() -> Iterator[Expected]:
    """Heads first, units first, both at once: the same weights."""
    recipe = Recipe.load("bert-tiny")
    weights, found = _shaken(recipe).state_dict(), list[dict[str, torch.Tensor]]()
    heads, units = Kept(heads=[HEADS] * 2), Kept(units=[UNITS] * 2)
    for ways in ((heads, units), (units, heads), (Kept([HEADS] * 2, [UNITS] * 2),)):
        choice, own = recipe.encoder, dict(weights)
        for kept in ways:
            own = cut_weights(own, choice, kept, prefix="")
            choice = kept.cut(choice)
        found.append(own)
    for name, other in (("units first", found[1]), ("both at once", found[2])):
        alike = all(found[0][n].equal(tensor) for n, tensor in other.items())
        yield same(f"weights, heads first against {name}", alike, True)


ROW = Row(
    "C16",
    "surgery",
    "Is what is cut out the same as what is masked?",
    "Michel et al. 2019",
    run,
)
