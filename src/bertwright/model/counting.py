"""How many parameters, how much arithmetic, how much memory, and what the published training costs.

Floating-point operations are those that the result needs: a multiplication and an addition count
two, the vocabulary is paid for the asked places only, lookups and pointwise work not at all.
"""

from dataclasses import dataclass

import torch
from torch import nn

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.dropout import LockedDropout
from bertwright.encoder.locality import rule_at
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import laid_out_by_head
from bertwright.machine.process import usual_device
from bertwright.machine.speed import usual_precision
from bertwright.model.model import Model
from bertwright.objectives.output import Tied
from bertwright.recipes import Recipe
from bertwright.recipes.about import Count

BACKWARD_AND_FORWARD = 3
"""A training step costs three times its forward pass: two products go back for each one there."""

BYTES_PER_PARAMETER = 16
"""Master, gradient and two moments in float32; under bf16 gradient and copy share one place."""


def parameters_by_part(recipe: Recipe, vocabulary_size: int | None = None) -> dict[str, int]:
    """The number of parameters of every part, a shared storage counted once."""
    size = vocabulary_size or recipe.text.tokenizer.size
    with torch.device("meta"):
        model = Model(recipe, size)
    parts = {
        "embeddings": model.encoder.embeddings,
        "blocks": model.encoder.blocks,
        "passage": model.encoder.passage,
        "last_norm": model.encoder.norm,
        "decoder": model.decoder or nn.Identity(),
        "output": model.output or nn.Identity(),
        **{f"head_{name}": head for name, head in model.heads.items()},
        "pooler": model.pooler or nn.Identity(),
    }
    counted: dict[str, int] = {}
    seen: set[nn.Parameter] = set()
    for name, part in parts.items():
        own = set(part.parameters()) - seen
        counted[name] = sum(parameter.numel() for parameter in own)
        seen |= own
    return {name: number for name, number in counted.items() if number}


def counted(system: str, count: Count) -> int:
    """The parameters of what a count of a system is about."""
    parts = parameters_by_part(Recipe.load(f"{system}-{count.size}", count.changes))
    return sum(n for part, n in parts.items() if count.parts is None or part in count.parts)


@dataclass(frozen=True)
class Arithmetic:
    """Floating-point operations of a forward pass, per token."""

    width: float
    """Products with weights: grows with the width squared, not with the length."""
    length: float
    """Scores and weighted sums of attention: grows with the length."""
    vocabulary: float
    """Output transform and vocabulary, at the asked places."""
    decoder: float = 0.0
    """All that a decoder does with its targets, but for the vocabulary."""
    drafter: float = 0.0
    """All that a network does which is asked before the encoder, but for the vocabulary."""
    unread: float = 0.0
    """Products with weights behind the last mixing of places, where nobody reads what they give."""

    @property
    def forward(self) -> float:
        needed = self.width - self.unread
        return needed + self.length + self.vocabulary + self.decoder + self.drafter

    @property
    def training(self) -> float:
        return BACKWARD_AND_FORWARD * self.forward


def arithmetic(recipe: Recipe, phase: int = 0, vocabulary_size: int | None = None) -> Arithmetic:
    """The operations per token of one phase of a recipe."""
    encoder, length = recipe.encoder, recipe.assembly_of(phase).length
    size = vocabulary_size or recipe.text.tokenizer.size
    products, attended = _stack(encoder, length, recipe.num_blocks_of(phase))
    whole, tail = 1.0, _tail(encoder, recipe.num_blocks_of(phase))
    vocabulary = decoded = drafted = unread = 0.0
    for turn in recipe.turns_of(phase):
        asked = [o for o in turn.objectives.values() if not o.rewrites]
        places = 1 + sum(o.added_places for o in asked)
        read = sum(o.read_places(length, turn.objectives) for o in asked)
        unread += turn.share * tail * (places - read if 2 * read < places else 0.0)
        for objective in turn.objectives.values():
            whole += turn.share * objective.added_places
            share = turn.share * objective.per_place(length)
            own = objective.head_operations(encoder, size, length, turn.objectives)
            vocabulary += turn.share * own
            drafter = objective.drafter(encoder)
            if drafter is not None:
                drafted += turn.share * sum(_stack(drafter, length))
                vocabulary += share * Tied().operations(drafter, size)
                continue
            vocabulary += share * recipe.output.operations(encoder, size)
            if objective.decodes and recipe.decoder is not None:
                targets = objective.per_place(length) * length
                decoded += share * _decoder(recipe.decoder.of(encoder), targets, length)
    return Arithmetic(whole * products, whole * attended, vocabulary, decoded, drafted, unread)


def _stack(
    choice: EncoderChoice, length: int, num_blocks: int | None = None
) -> tuple[float, float]:
    """The operations per place of a row of a length: those of a width and those of the length."""
    gates = 3 if choice.feed_forward.gated else 2
    products = attended = 0.0
    orders = choice.depth.orders()[:num_blocks]
    for block, (order, (reads, writes)) in enumerate(
        zip(orders, choice.inner_widths, strict=False)
    ):
        mixing, inner = order.count("s"), order.count("f")
        mixer = choice.mixer_at(block)
        mixed, by_length = mixer.operations_between(reads, writes, choice.num_parts, length)
        products += mixing * mixed
        products += inner * 2 * gates * writes * choice.feed_forward_at(block).inner(writes)
        products += choice.depth.operations(choice.width)
        if choice.bottleneck is not None:
            products += choice.bottleneck.operations(choice.width)
        by_length += choice.positions.operations(writes, length)
        attended += mixing * by_length * _computed_share(choice, block, length)
    return products + choice.embeddings.operations(choice.entry_width), attended


def _tail(choice: EncoderChoice, num_blocks: int) -> float:
    """The operations per place behind the last mixing of places, where they can be left out."""
    passage = choice.residual.passage(choice.depth.passage(choice.width))
    locked = isinstance(choice.dropout, LockedDropout)
    kept = choice.residual.looks_back or choice.bottleneck is not None or locked
    if kept or not passage.narrows or num_blocks == 0:
        return 0.0
    writes = choice.inner_widths[num_blocks - 1][1]
    gates = 3 if choice.feed_forward.gated else 2
    inner = choice.depth.orders()[num_blocks - 1].rpartition("s")[2].count("f")
    return inner * 2 * gates * writes * choice.feed_forward_at(num_blocks - 1).inner(writes)


def _computed_share(choice: EncoderChoice, block: int, length: int) -> float:
    """Of all pairs of a query and a key, those that a block computes where a rule is laid out, as a
    mean over its heads."""
    if choice.mixer.tiling == "never" or choice.positions.by_distance:
        return 1.0
    rule = rule_at(block, choice.visibility, choice.local)
    rows = Coordinates(torch.arange(length)[None])
    heads = choice.mixer.shape(choice.inner_width).heads
    laid = laid_out_by_head(rule, rows, heads, choice.mixer.tiling == "auto")
    pairs = [t.pairs * (heads if t.heads is None else len(t.heads)) for t in laid]
    return sum(pairs) / (heads * length**2) if laid else 1.0


def _decoder(decoder: EncoderChoice, targets: float, length: int) -> float:
    """The operations of a decoder for each of the targets of a row of a length.

    Cross-attention projects queries and outputs for every target, keys and values for every place.
    """
    across = sum(order.count("c") for order in decoder.depth.orders())
    projected, attended = decoder.mixer.operations(decoder.width, length)
    read = across * (projected / 2 * (1 + length / targets) + attended)
    return sum(_stack(decoder, round(targets))) + read


def training_arithmetic(recipe: Recipe, vocabulary_size: int | None = None) -> float:
    """The operations of the whole training that the recipe describes."""
    return sum(
        recipe.tokens_of(phase) * arithmetic(recipe, phase, vocabulary_size).training
        for phase in range(len(recipe.phases))
    )


def training_memory(recipe: Recipe, vocabulary_size: int | None = None) -> int:
    """Bytes for parameters, gradients, two moments and the activations of one micro-batch, in the
    precision that this machine takes where the recipe states none."""
    number = sum(parameters_by_part(recipe, vocabulary_size).values())
    tokens = min(recipe.micro_batch_tokens, int(recipe.batch_tokens.at(1.0)))
    length = max(recipe.assembly_of(n).length for n in range(len(recipe.phases)))
    precision = recipe.precision or usual_precision(usual_device())
    element = 4 if precision == "float32" else 2
    return number * BYTES_PER_PARAMETER + tokens * _activations(recipe.encoder, length) * element


def _activations(encoder: EncoderChoice, length: int) -> int:
    """Numbers kept for the way back, per token."""
    # Of a reversible stack one block at a time is there.
    orders = encoder.depth.orders()
    letters = orders[0] if encoder.residual.is_reversible else "".join(orders)
    mixing, inner = letters.count("s"), letters.count("f")
    width = encoder.inner_width
    heads = encoder.mixer.shape(width).heads
    wide = encoder.feed_forward.inner(width) * (3 if encoder.feed_forward.gated else 2)
    return mixing * (7 * width + 2 * heads * length) + inner * (3 * width + wide)
