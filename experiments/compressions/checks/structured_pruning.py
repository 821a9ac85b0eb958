"""Structured pruning of heads and units, against the same ones with closed gates."""

from collections.abc import Collection, Iterator, Set
from contextlib import ExitStack
from dataclasses import replace

import torch

from bertwright.compression.pruning.structured import Subnetwork, prune_weights
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.models.model import Model
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe
from bertwright.recipes.loading import system_names
from experiments.analyses.expecting import ExpectedValue, expect_equal, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

VOCABULARY = 60
QUICK_SYSTEMS = ("bert", "modern", "gpt-2", "albert", "sandwich", "t5", "mobilebert", "gpt-bert")
HEADS, UNITS = (1,), (0, 3, 4, 100)
"""The heads and units that every block keeps."""

UNITS_ONLY = {
    *("fixed-patterns", "ib-bert", "longformer", "longformer-char", "performer", "reformer"),
    *("t5", "transformer-xl", "xlm-e", "xlnet"),
}
"""Systems whose heads differ by more than their weights, so that only units can be pruned."""

UNSUPPORTED = {
    *("awd-lstm", "bilstm-student", "elmo", "lstm-autoencoder", "lstm-lm"),
    *("gpt-bert", "mobilebert"),
}
"""Systems without feed-forwards, with inner norms, or with four feed-forwards in a block. Heads and
units of all other systems can be pruned."""


def run(toy: ToyModels) -> CheckResults:
    """Prune every system at 2x128, with noise on every parameter, in float64."""
    systems = QUICK_SYSTEMS if toy.is_quick else system_names()
    units_only, reasons = set[str](), dict[str, str]()
    for system in systems:
        recipe = _two_head_recipe(system)
        num_blocks = len(recipe.encoder.depth.sublayer_orders())
        units = Subnetwork(units=[UNITS] * num_blocks)
        for subnetwork in (Subnetwork([HEADS] * num_blocks, units.units), units):
            try:
                pruned_config = subnetwork.prune_config(recipe.encoder)
            except UserError as error:
                reasons[system] = str(error)
                continue
            if subnetwork is units:
                units_only.add(system)
            yield _pruned_equals_gated(system, recipe, subnetwork, pruned_config)
            break
    unsupported = reasons.keys() - units_only
    yield from support_as_known(systems, units_only, unsupported)
    yield from _order_does_not_matter()
    listed = "; ".join(f"{system} ({reasons[system]})" for system in sorted(unsupported)) or "none"
    yield MeasuredValue(f"unsupported systems: {listed}", [len(unsupported)])


def _two_head_recipe(system: str) -> Recipe:
    """Return a system's smallest size, with two heads if it has only one."""
    recipe = Recipe.load(f"{system}-tiny")
    mixer = recipe.encoder.mixer
    if (
        not isinstance(mixer, AttentionConfig)
        or mixer.head_shape(recipe.encoder.last_block_width).num_heads > 1
    ):
        return recipe
    return Recipe.load(f"{system}-tiny", "encoder.mixer.heads=2")


def support_as_known(
    systems: Collection[str], units_only: Set[str], unsupported: Set[str]
) -> Iterator[ExpectedValue]:
    """Check which systems allow only units to be pruned, and which nothing."""
    for name, actual, known in (
        ("with prunable units only", units_only, UNITS_ONLY),
        ("that cannot be pruned", unsupported, UNSUPPORTED),
    ):
        expected = known.intersection(systems)
        yield expect_same(f"systems {name}", sorted(actual), sorted(expected))


def _pruned_equals_gated(
    system: str, recipe: Recipe, subnetwork: Subnetwork, pruned_config: EncoderConfig
) -> ExpectedValue:
    """Check the difference at real positions; the first of two sequences is padded."""
    encoder = _perturbed_encoder(recipe)
    pruned = Encoder(pruned_config, VOCABULARY).double().eval()
    pruned.load_state_dict(
        prune_weights(encoder.state_dict(), recipe.encoder, subnetwork, prefix="")
    )
    token_ids = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    is_real = torch.ones_like(token_ids)
    is_real[0, 15:] = 0
    token_info = replace(TokenInfo.from_token_ids(token_ids), document_ids=is_real - 1)
    with torch.no_grad():
        states = pruned(token_ids, token_info)[is_real > 0]
        with _close_gates(encoder, subnetwork):
            expected = encoder(token_ids, token_info)[is_real > 0]
    return expect_equal(f"{system}, pruned against gated", states, expected, 1e-12)


def _perturbed_encoder(recipe: Recipe) -> Encoder:
    """Return an encoder with noise on every parameter: no bias is 0, no gain 1."""
    encoder = Model.build(recipe, VOCABULARY).encoder.double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.05 * noise)
    return encoder


def _close_gates(encoder: Encoder, subnetwork: Subnetwork) -> ExitStack:
    """Close the gates of all pruned heads and units, in every block."""
    stack = ExitStack()
    if subnetwork.heads is not None:
        heads = torch.zeros(encoder.num_heads, 1, 1, dtype=torch.float64)
        heads[list(HEADS)] = 1
        stack.enter_context(encoder.gate({"blocks.*.attention.context": heads}))
    if subnetwork.units is not None:
        inner = next(
            module.in_features
            for name, module in encoder.named_modules()
            if name.endswith("feed_forward.down") and isinstance(module, torch.nn.Linear)
        )
        units = torch.zeros(inner, dtype=torch.float64)
        units[list(UNITS)] = 1
        stack.enter_context(encoder.gate({"blocks.*.feed_forward.activation": units}))
    return stack


def _order_does_not_matter() -> Iterator[ExpectedValue]:
    """Check that heads first, units first and both at once give the same weights."""
    recipe = Recipe.load("bert-tiny")
    initial, results = _perturbed_encoder(recipe).state_dict(), list[dict[str, torch.Tensor]]()
    heads, units = Subnetwork(heads=[HEADS] * 2), Subnetwork(units=[UNITS] * 2)
    for order in ((heads, units), (units, heads), (Subnetwork([HEADS] * 2, [UNITS] * 2),)):
        config, weights = recipe.encoder, dict(initial)
        for subnetwork in order:
            weights = prune_weights(weights, config, subnetwork, prefix="")
            config = subnetwork.prune_config(config)
        results.append(weights)
    for name, other in (("units first", results[1]), ("both at once", results[2])):
        is_equal = all(results[0][n].equal(tensor) for n, tensor in other.items())
        yield expect_same(f"weights, heads first against {name}", is_equal, True)


CHECK = CompressionCheck(
    "C16",
    "surgery",
    "Is a pruned model the same as a masked one?",
    "Michel et al. 2019",
    run,
)
