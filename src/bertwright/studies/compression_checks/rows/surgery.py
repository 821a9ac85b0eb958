"""Heads and units that are cut out of an encoder, against the same ones behind closed gates."""

from collections.abc import Collection, Iterator, Set
from contextlib import ExitStack
from dataclasses import replace

import torch

from bertwright.analysis.planted.expecting import Expected, equal, same
from bertwright.compression.surgery import Kept, cut_weights
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.mixers import AttentionChoice
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.recipes import Recipe
from bertwright.recipes.loading import systems
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

VOCABULARY = 60
QUICK_SYSTEMS = ("bert", "modern", "gpt-2", "albert", "sandwich", "t5", "mobilebert", "gpt-bert")
HEADS, UNITS = (1,), (0, 3, 4, 100)
"""That stay in every block, of two heads and a hundred units or more."""

UNITS_ALONE = {
    *("fixed-patterns", "ib-bert", "longformer", "longformer-char", "performer", "reformer"),
    *("t5", "transformer-xl", "xlm-e", "xlnet"),
}
"""Their heads are told apart by something that is not in the weights that go."""

REFUSING = {
    *("awd-lstm", "bilstm-student", "elmo", "lstm-autoencoder", "lstm-lm"),
    *("gpt-bert", "mobilebert"),
}
"""Without a feed-forward, with norms within sublayers, with four feed-forwards in a block. All
other systems lose heads and units."""


def run(ground: Ground) -> Came:
    """Every system at 2x128, with noise in every parameter, in float64."""
    asked = QUICK_SYSTEMS if ground.quick else systems()
    alone, refused = set[str](), dict[str, str]()
    for system in asked:
        recipe = _of_two_heads(system)
        blocks = len(recipe.encoder.depth.orders())
        units = Kept(units=[UNITS] * blocks)
        for kept in (Kept([HEADS] * blocks, units.units), units):
            try:
                left = kept.cut(recipe.encoder)
            except UserError as error:
                refused[system] = str(error)
                continue
            if kept is units:
                alone.add(system)
            yield _cut(system, recipe, kept, left)
            break
    none = refused.keys() - alone
    yield from as_known(asked, alone, none)
    yield from _in_any_order()
    why = "; ".join(f"{system} ({refused[system]})" for system in sorted(none)) or "none"
    yield Measured(f"systems that say why not: {why}", [len(none)])


def _of_two_heads(system: str) -> Recipe:
    """In its smallest size, where heads as wide as those of some leave but one."""
    recipe = Recipe.load(f"{system}-tiny")
    mixer = recipe.encoder.mixer
    if not isinstance(mixer, AttentionChoice) or mixer.shape(recipe.encoder.inner_width).heads > 1:
        return recipe
    return Recipe.load(f"{system}-tiny", "encoder.mixer.heads=2")


def as_known(asked: Collection[str], alone: Set[str], none: Set[str]) -> Iterator[Expected]:
    """Of which systems units alone were taken, and of which nothing."""
    for name, found, known in (
        ("of which units alone were cut", alone, UNITS_ALONE),
        ("of which nothing was cut", none, REFUSING),
    ):
        wanted = known.intersection(asked)
        yield same(f"systems {name}", sorted(found), sorted(wanted))


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
        with _gated(encoder, kept):
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


def _gated(encoder: Encoder, kept: Kept) -> ExitStack:
    """All but what stays, behind gates of 0: the same in every block, however many of them run."""
    stack = ExitStack()
    if kept.heads is not None:
        heads = torch.zeros(encoder.heads, 1, 1, dtype=torch.float64)
        heads[list(HEADS)] = 1
        stack.enter_context(encoder.gate({"blocks.*.attention.context": heads}))
    if kept.units is not None:
        inner = next(
            module.in_features
            for name, module in encoder.named_modules()
            if name.endswith("feed_forward.down") and isinstance(module, torch.nn.Linear)
        )
        units = torch.zeros(inner, dtype=torch.float64)
        units[list(UNITS)] = 1
        stack.enter_context(encoder.gate({"blocks.*.feed_forward.activation": units}))
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
