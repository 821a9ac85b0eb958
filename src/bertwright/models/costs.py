"""Parameters, FLOPs, memory and training time of a recipe.

FLOPs count only the necessary matrix products; a multiplication and an addition count as two. The
vocabulary projection counts only at target positions. Lookups and pointwise operations do not
count.
"""

from dataclasses import dataclass

import torch
from torch import nn

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.models.model import Model
from bertwright.modules.attention.mask import compute_tiles_by_head
from bertwright.modules.attention.mask.windows import visibility_at_block
from bertwright.modules.dropout import LockedDropoutConfig
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.heads.lm_head import TiedHeadConfig
from bertwright.recipes import Recipe
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.runtime.process import default_device

TRAINING_TO_FORWARD_FLOPS = 3
"""Forward passes that a training step costs, as each product has two in the backward pass."""

BYTES_PER_PARAMETER = 16
"""Float32 master, gradient and two moments; a bf16 gradient and a bf16 copy share four bytes."""


def num_parameters_by_part(recipe: Recipe, vocab_size: int | None = None) -> dict[str, int]:
    """Return the number of parameters by part; shared parameters count once."""
    size = vocab_size or recipe.text.tokenizer.vocab_size
    with torch.device("meta"):
        model = Model(recipe, size)
    parts = {
        "embeddings": model.encoder.embeddings,
        "value_embeddings": model.encoder.value_embeddings or nn.Identity(),
        "blocks": model.encoder.blocks,
        "layer_stack": model.encoder.layer_stack,
        "last_norm": model.encoder.norm,
        "decoder": model.decoder or nn.Identity(),
        "output": model.output or nn.Identity(),
        **{f"head_{name}": head for name, head in model.heads.items()},
        "pooler": model.pooler or nn.Identity(),
        "vector_projection": model.vector_projection or nn.Identity(),
    }
    counts: dict[str, int] = {}
    seen: set[nn.Parameter] = set()
    for name, part in parts.items():
        parameters = set(part.parameters()) - seen
        counts[name] = sum(parameter.numel() for parameter in parameters)
        seen |= parameters
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class FlopsPerToken:
    """The FLOPs of a forward pass, per token."""

    projections: float
    """Products with weights, which are proportional to width squared and independent of length."""
    attention: float
    """Attention scores and weighted sums, which are proportional to the length."""
    vocabulary: float
    """The LM head's transform and vocabulary projection, at target positions."""
    decoder: float = 0.0
    """The decoder without its vocabulary projection."""
    generator: float = 0.0
    """The generator encoder without its vocabulary projection."""
    skipped: float = 0.0
    """Products after the last token mixer, at positions that no objective reads."""

    @property
    def forward(self) -> float:
        needed = self.projections - self.skipped
        return needed + self.attention + self.vocabulary + self.decoder + self.generator

    @property
    def training(self) -> float:
        return TRAINING_TO_FORWARD_FLOPS * self.forward


def flops_per_token(recipe: Recipe, phase: int = 0, vocab_size: int | None = None) -> FlopsPerToken:
    """Return the FLOPs per token of one phase."""
    encoder, length = recipe.encoder, recipe.input_format_of(phase).length
    size = vocab_size or recipe.text.tokenizer.vocab_size
    projections, attention = _stack_flops(encoder, length, recipe.num_blocks_of(phase))
    positions_per_token, skippable = 1.0, _skippable_flops(encoder, recipe.num_blocks_of(phase))
    vocabulary = decoder = generators = skipped = 0.0
    for step in recipe.objective_schedule(phase):
        objectives = [o for o in step.objectives.values() if not o.capabilities.is_generator]
        positions = 1 + sum(o.query_stream_fraction for o in objectives)
        num_read = sum(o.states_per_token(length, step.objectives) for o in objectives)
        num_unread = positions - num_read if 2 * num_read < positions else 0.0
        skipped += step.fraction * skippable * num_unread
        for objective in step.objectives.values():
            positions_per_token += step.fraction * objective.query_stream_fraction
            num_targets = step.fraction * objective.targets_per_token(length)
            head = objective.head_flops(encoder, size, length, step.objectives)
            vocabulary += step.fraction * head
            generator = objective.generator_config(encoder)
            if generator is not None:
                generators += step.fraction * sum(_stack_flops(generator, length))
                vocabulary += num_targets * TiedHeadConfig().flops(generator, size)
                continue
            vocabulary += num_targets * recipe.output.flops(encoder, size)
            if objective.capabilities.uses_decoder and recipe.decoder is not None:
                targets = objective.targets_per_token(length) * length
                flops = sum(_stack_flops(recipe.decoder.stack_config(encoder), round(targets)))
                flops += recipe.decoder.cross_attention_flops(encoder, targets, length)
                decoder += num_targets * flops
    projections, attention = positions_per_token * projections, positions_per_token * attention
    return FlopsPerToken(projections, attention, vocabulary, decoder, generators, skipped)


def _stack_flops(
    config: EncoderConfig, length: int, num_blocks: int | None = None
) -> tuple[float, float]:
    """Return projection and attention FLOPs per position."""
    matrices = 3 if config.feed_forward.is_gated else 2
    projections = attention = 0.0
    orders = config.depth.sublayer_orders()[:num_blocks]
    blocks = zip(orders, config.block_widths, strict=False)
    for block, (order, (in_width, width)) in enumerate(blocks):
        mixers, ffns = order.count("s"), order.count("f")
        mixer = config.mixer_at(block)
        mixer_flops, by_length = mixer.sublayer_flops(in_width, width, config.visibility, length)
        projections += mixers * mixer_flops
        inner = config.feed_forward_at(block).inner_width(width)
        projections += ffns * 2 * matrices * width * inner
        projections += config.depth.flops(config.width)
        if config.bottleneck is not None:
            projections += config.bottleneck.flops(config.width)
        by_length += config.positions.flops(width, length)
        attention += mixers * by_length * _attended_fraction(config, block, length)
    return projections + config.embeddings.flops(config.embeddings_width), attention


def _skippable_flops(config: EncoderConfig, num_blocks: int) -> float:
    """Return the FLOPs per position after the last token mixer; 0 if they are always needed."""
    layer_stack = config.residual.build_layer_stack(config.depth.build_layer_stack(config.width))
    is_locked = isinstance(config.dropout, LockedDropoutConfig)
    needs_all = config.residual.needs_sublayer_outputs or config.bottleneck is not None or is_locked
    if needs_all or not layer_stack.supports_output_positions or num_blocks == 0:
        return 0.0
    width = config.block_widths[num_blocks - 1][1]
    matrices = 3 if config.feed_forward.is_gated else 2
    ffns = config.depth.sublayer_orders()[num_blocks - 1].rpartition("s")[2].count("f")
    return ffns * 2 * matrices * width * config.feed_forward_at(num_blocks - 1).inner_width(width)


def _attended_fraction(config: EncoderConfig, block: int, length: int) -> float:
    """Return the fraction of query-key pairs that a block computes, averaged over heads."""
    if config.mixer.tiling == "never" or config.positions.is_relative:
        return 1.0
    visibility = visibility_at_block(block, config.visibility, config.sliding_window)
    info = TokenInfo(torch.arange(length)[None])
    heads = config.mixer.head_shape(config.last_block_width).num_heads
    tiles = compute_tiles_by_head(visibility, info, heads, config.mixer.tiling == "auto")
    counts = [heads if t.head_indices is None else len(t.head_indices) for t in tiles]
    pairs = sum(t.num_pairs * count for t, count in zip(tiles, counts, strict=True))
    return pairs / (heads * length**2) if tiles else 1.0


def training_flops(recipe: Recipe, vocab_size: int | None = None) -> float:
    """Return the FLOPs of all phases of the recipe."""
    return sum(
        recipe.num_tokens_of(phase) * flops_per_token(recipe, phase, vocab_size).training
        for phase in range(len(recipe.phases))
    )


def training_memory_bytes(recipe: Recipe, vocab_size: int | None = None) -> int:
    """Return the bytes of parameters, optimiser state, and activations of one micro-batch."""
    num_parameters = sum(num_parameters_by_part(recipe, vocab_size).values())
    precision = recipe.precision or default_precision(default_device())
    value_bytes = 4 if precision == "float32" else 2
    return num_parameters * BYTES_PER_PARAMETER + activation_bytes(recipe, value_bytes)


def activation_bytes(recipe: Recipe, value_bytes: int) -> int:
    """Return the bytes of activations that one micro-batch keeps for the backward pass."""
    sizes = (
        micro_batch_tokens(recipe, phase)
        * _activation_size(recipe.encoder, recipe.input_format_of(phase).length)
        for phase in range(len(recipe.phases))
    )
    return max(sizes) * value_bytes


def micro_batch_tokens(recipe: Recipe, phase: int) -> int:
    """Return the most tokens of a phase, padding included, that are computed at once."""
    tokens = int(recipe.batch_tokens.value_range()[1] * recipe.phases[phase].batch)
    objectives = recipe.objectives_of(phase).values() if recipe.objectives else ()
    if not any(objective.capabilities.compares_sequences for objective in objectives):
        tokens = min(tokens, recipe.micro_batch_tokens)
    return max(tokens, recipe.input_format_of(phase).length)


def _activation_size(encoder: EncoderConfig, length: int) -> int:
    """Return the number of values per token that are kept for the backward pass."""
    # A reversible stack keeps the activations of one block at a time.
    orders = encoder.depth.sublayer_orders()
    sublayers = orders[0] if encoder.residual.is_reversible else "".join(orders)
    mixers, ffns = sublayers.count("s"), sublayers.count("f")
    width = encoder.last_block_width
    heads = encoder.mixer.head_shape(width).num_heads
    inner = encoder.feed_forward.inner_width(width) * (3 if encoder.feed_forward.is_gated else 2)
    return mixers * (7 * width + 2 * heads * length) + ffns * (3 * width + inner)


PEAK_FLOPS = {
    "v100": 125e12,
    "t4": 65e12,
    "a100": 312e12,
    "a6000": 155e12,
    "l4": 121e12,
    "h100": 989e12,
    "h200": 989e12,
}
"""Dense 16-bit matrix FLOP/s by GPU, from the vendors' data sheets."""


def training_hours(flops: float, gpu: str, utilisation: float) -> float:
    """Return the hours that ``flops`` take on a GPU at a fraction ``utilisation`` of its peak."""
    if gpu not in PEAK_FLOPS:
        raise UserError(f"--gpu {gpu} is not in the table{did_you_mean(gpu, PEAK_FLOPS)}")
    if not 0.0 < utilisation <= 1.0:
        raise UserError(f"--utilisation {utilisation} must lie between 0 and 1")
    return flops / (PEAK_FLOPS[gpu] * utilisation) / 3600
