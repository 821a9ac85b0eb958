"""The encoder: embeddings, blocks, a final norm."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.encoder.block import SUBLAYER_NAMES, Block, nth_name
from bertwright.encoder.bottleneck import BottleneckBlock
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.layer_stack import AuxOutputs, BlockCall, StackContext
from bertwright.encoder.value_embeddings import ValueEmbeddings
from bertwright.modules.attention.attention import Attention, AttentionConfig
from bertwright.modules.attention.cache import KeyValueCache, Memory, Past
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    Tiling,
    Visibility,
    allowed_pairs,
    build_attention_mask,
    scan_directions,
    supports_recurrence,
)
from bertwright.modules.attention.mask.token_runs import find_token_runs
from bertwright.modules.attention.mask.windows import visibility_at_block
from bertwright.modules.context import (
    AttentionContext,
    BlockContext,
    CrossAttentionContext,
    SublayerOutputs,
)
from bertwright.modules.dropout import block_dropout, input_dropout
from bertwright.modules.dropout_rng import DropoutRng, dropout
from bertwright.modules.embeddings.embeddings import Embeddings
from bertwright.modules.hooks import HookPoint, Taps, ThreadTaps
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.runtime.compiler import configure_compiler, mark_batch_dynamic

OUTPUT_STREAM = 68
"""Dropout stream of the final hidden states."""


class Encoder(nn.Module):
    """An encoder from token ids and token metadata to hidden states.

    ``taps`` holds the hooks that record and replace intermediate values. ``num_running_blocks`` is
    the number of blocks that run. ``knowledge_adapters`` read hidden states beside it; there are
    none unless added later.
    """

    def __init__(self, config: EncoderConfig, vocab_size: int) -> None:
        super().__init__()
        self.visibility = config.visibility
        self.tiling: Tiling = config.mixer.tiling
        self.needs_global_tokens = config.mixer.needs_global_tokens
        self.thread_taps, self.prefix = ThreadTaps(), ""
        shape = config.mixer.head_shape(config.last_block_width)
        self.num_heads = shape.num_heads
        width = config.embeddings_width
        positions = config.positions.build(config.embeddings.sum_width(width), shape)
        self.sliding_window = config.sliding_window
        self.sliding_window_rotary = config.sliding_window_positions.build(1, shape).rotary_angles
        self.embeddings = Embeddings(
            config.embeddings,
            config.norm,
            positions,
            width,
            vocab_size,
            input_dropout(config.dropout),
            config.num_directions,
        )
        self.value_embeddings = (
            None
            if config.value_embeddings is None
            else ValueEmbeddings(
                config.value_embeddings,
                len(config.depth.sublayer_orders()),
                vocab_size,
                shape.inner_width,
            )
        )
        self.scan_directions = (
            scan_directions(config.visibility) if config.mixer.is_recurrent else ()
        )
        self.blocks = nn.ModuleList(build_blocks(config))
        self.layer_stack = config.residual.build_layer_stack(
            config.depth.build_layer_stack(config.width)
        )
        self.output_dropout = config.output_dropout
        self.num_running_blocks, self.is_compiled = len(self.blocks), False
        self.needs_sublayer_outputs = config.residual.needs_sublayer_outputs
        self.norm = config.norm.build(config.width) if config.norm.is_pre_norm else nn.Identity()
        self.knowledge_adapters = nn.ModuleList()

    @property
    def taps(self) -> Taps:
        """Return the hooks of the current thread."""
        return self.thread_taps.current

    def forward(
        self,
        token_ids: Tensor,
        token_info: TokenInfo | None = None,
        visibility: Visibility | None = None,
        dropout_rng: DropoutRng | None = None,
        stop_after: int | None = None,
        memory: Memory | KeyValueCache | None = None,
        aux_outputs: AuxOutputs | None = None,
        source: CrossAttentionSource | None = None,
        output_positions: Tensor | None = None,
    ) -> Tensor:
        """Map token_ids (B, L) int64 to hidden states (B, L, D).

        With flat ``output_positions`` (M,) the result is (M, D), and everything after the last
        mixer is computed only for these positions. ``visibility`` replaces the encoder's attention
        rule. ``stop_after`` ends the pass after that block, without the final norm. ``memory``
        holds the text before the sequences and records the next memory; a ``KeyValueCache`` is for
        sequences that are read in parts. Some layer stacks add to ``aux_outputs``. ``source`` is
        the encoder output that a decoder attends to.
        """
        token_info = token_info or TokenInfo.from_token_ids(token_ids)
        hooks = None if self.taps.is_idle else HookPoint(self.taps, self.prefix)
        x = self.embeddings(token_ids, token_info, dropout_rng, hooks and hooks.child("embeddings"))
        key_info = None if memory is None else memory.extend_token_info(token_info)
        cross = None
        if source is not None:
            source = self.select_source(source)
            cross = CrossAttentionContext(
                source.hidden_states,
                build_attention_mask(BidirectionalVisibility(), token_info, source.token_info),
            )
        sublayer_outputs = SublayerOutputs(x) if self.needs_sublayer_outputs else None
        if stop_after is not None and not 0 <= stop_after < len(self.blocks):
            raise UserError(f"stop_after is {stop_after}: the last block is {len(self.blocks) - 1}")
        last_block = self.num_running_blocks - 1 if stop_after is None else stop_after
        blocks = range(min(last_block + 1, self.num_running_blocks))
        rule = visibility or self.visibility
        contexts = self._attention_contexts(
            token_ids, blocks, rule, token_info, key_info, cross, hooks, dropout_rng
        )
        token_values: Sequence[Tensor | None] = [None] * len(blocks)
        if self.value_embeddings is not None:
            token_values = self.value_embeddings(token_ids, token_info)
        can_select = hooks is None and self.layer_stack.supports_output_positions
        selected = output_positions if can_select else None
        if selected is not None and self.is_compiled:
            mark_batch_dynamic(selected)

        def get_call(index: int) -> BlockCall:
            block = cast(Block, self.blocks[index])
            can_gather = index == blocks[-1] and block.supports_output_positions
            context = BlockContext(
                contexts[index],
                None if dropout_rng is None else dropout_rng.for_block(index),
                hooks and hooks.child(f"blocks.{index}"),
                sublayer_outputs=sublayer_outputs,
                output_positions=selected if can_gather else None,
                token_values=token_values[index],
            )
            return BlockCall(
                block,
                context,
                self.embeddings.positions.block_embedding(index, token_info),
                None if memory is None else partial(self._get_past, memory, index, token_info),
            )

        documents = token_info.document_ids
        is_real = None if documents is None else documents >= 0
        context = StackContext(get_call, dropout_rng, is_real, aux_outputs, hooks is not None)
        x = self.layer_stack(x, blocks, context)
        if stop_after is None or stop_after >= self.num_running_blocks:
            x = self.norm(x)
            x = self._drop_output(x, dropout_rng, selected, token_ids.shape[1])
            if hooks is not None:
                x = hooks("output", x)
                self.taps.end_pass()
        if output_positions is not None and x.dim() == token_ids.dim() + 1:
            x = x.flatten(0, 1).index_select(0, output_positions)
        return x

    def select_source(self, source: CrossAttentionSource) -> CrossAttentionSource:
        """Return the part of another encoder's output that cross-attention reads."""
        return source

    def _attention_contexts(
        self,
        token_ids: Tensor,
        blocks: Sequence[int],
        visibility: Visibility,
        token_info: TokenInfo,
        key_info: TokenInfo | None,
        cross_attention: CrossAttentionContext | None,
        hooks: HookPoint | None,
        dropout_rng: DropoutRng | None,
    ) -> list[AttentionContext]:
        """Return the context of each block; blocks with the same attention rule share one."""
        if self.scan_directions and not supports_recurrence(visibility):
            raise UserError(
                f"a recurrent mixer reads token by token, which rules out {visibility!r}"
            )
        positions = self.embeddings.positions
        relative_positions = positions.relative_positions(
            token_info, key_info or token_info, dropout_rng
        )
        is_dense = relative_positions is not None or self._reads_attention(blocks, hooks)
        tiling: Tiling = "never" if is_dense else self.tiling
        cache: dict[tuple[Visibility, bool], AttentionContext] = {}
        contexts: list[AttentionContext] = []
        for index in blocks:
            rule = visibility_at_block(index, visibility, self.sliding_window)
            is_local = self.sliding_window is not None and self.sliding_window.applies_to(index)
            rotary = self.sliding_window_rotary if is_local else positions.rotary_angles
            if (rule, is_local) not in cache:
                mask = build_attention_mask(
                    rule, token_info, key_info, tiling, self.needs_global_tokens, self.num_heads
                )
                cache[rule, is_local] = AttentionContext(
                    mask,
                    rotary(token_info),
                    None if key_info is None else rotary(key_info),
                    relative_positions,
                    {d: find_token_runs(mask, d, token_ids) for d in self.scan_directions},
                    cross_attention,
                )
            contexts.append(cache[rule, is_local])
        return contexts

    def _drop_output(
        self,
        x: Tensor,
        dropout_rng: DropoutRng | None,
        output_positions: Tensor | None,
        length: int,
    ) -> Tensor:
        """Apply dropout to the final hidden states (B, L, D), or (M, D) at output positions."""
        if dropout_rng is not None and output_positions is not None and x.dim() == 2:
            dropout_rng = dropout_rng.at_positions(output_positions, length)
        return dropout(x, self.output_dropout, dropout_rng, OUTPUT_STREAM)

    def _get_past(
        self, memory: Memory | KeyValueCache, block: int, token_info: TokenInfo, x: Tensor
    ) -> Past:
        if self.scan_directions:
            assert isinstance(memory, Memory), "a recurrent mixer has no keys and values"
            return memory.recurrent_carry(block)
        return memory.layer_past(block, x, token_info)

    def _reads_attention(self, blocks: Sequence[int], hooks: HookPoint | None) -> bool:
        """Return whether hooks read attention scores or weights, which need a dense mask."""
        return hooks is not None and any(
            hooks.child(f"blocks.{index}.attention").is_requested("scores", "weights")
            for index in blocks
        )

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile the blocks, as one graph for all, and the embedding sum.

        ``dynamic`` compiles for any shape.
        """
        configure_compiler()
        self.is_compiled = True
        self.embeddings.sum.compile(dynamic=dynamic)
        for block in get_blocks(self):
            block.compile_parts(dynamic)

    def compile_softmax(self) -> None:
        """Let attention compile its softmax into one loop when it is first called."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.may_compile = True

    @property
    def max_length(self) -> int | None:
        """Return the maximum sequence length of the position encoding; None for no limit."""
        return self.embeddings.positions.max_length

    def allowed_pairs(self, block: int, token_info: TokenInfo) -> Tensor:
        """Return the allowed query-key pairs of a block under the encoder's own attention rule.

        They are (B, 1, L, L) bool, or (B, H, L, L) if heads differ. Rows of padding are undefined.
        """
        return allowed_pairs(
            visibility_at_block(block, self.visibility, self.sliding_window),
            token_info,
            self.num_heads,
        )

    def record(
        self, *patterns: str, output_gradients: bool = False
    ) -> AbstractContextManager[dict[str, Tensor]]:
        """Collect the values with these names within the block, in this thread."""
        return self.taps.record(*patterns, output_gradients=output_gradients)

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Replace the values with this name with ``function(value)`` within the block."""
        return self.taps.replace(pattern, function)

    @contextmanager
    def gate(self, gates: dict[str, Tensor]) -> Generator[None]:
        """Multiply the values with these names, e.g. ``blocks.3.attention.context`` by (H, 1, 1).

        A gate of shape (B, H, 1, 1) has one factor per example. The gradient with respect to a gate
        measures the importance of the values that it multiplies.
        """
        with ExitStack() as stack:
            for name, gate in gates.items():

                def gated(value: Tensor, gate: Tensor = gate) -> Tensor:
                    return value * gate.to(value.device)

                stack.enter_context(self.replace(name, gated))
            yield

    @contextmanager
    def mask_attention(self, block: int, masked_pairs: Tensor) -> Generator[None]:
        """Mask pairs in a block where ``masked_pairs``, broadcastable to (B, H, L, L), is True."""

        def mask_scores(scores: Tensor) -> Tensor:
            return scores.masked_fill(masked_pairs, torch.finfo(scores.dtype).min)

        attention = f"blocks.{block}.attention"
        with (
            self.replace(f"{attention}.scores", mask_scores),
            self.replace(f"{attention}.weights", lambda w: w.masked_fill(masked_pairs, 0.0)),
        ):
            yield

    @contextmanager
    def skip_block(self, block: int) -> Generator[None]:
        """Make a block return its input; of two streams, both."""
        if (skipped := self.layer_stack.skipping(block)) is not None:
            with skipped:
                yield
            return
        block_inputs: list[Tensor] = []

        def keep(value: Tensor) -> Tensor:
            block_inputs[:] = [value]
            return value

        with (
            self.replace(f"blocks.{block}.input", keep),
            self.replace(f"blocks.{block}.residual", lambda _: block_inputs[0]),
        ):
            yield


def build_blocks(config: EncoderConfig) -> list[Block]:
    """Build the blocks of an encoder."""
    blocks, num_outputs = list[Block](), 0
    orders, is_pre_norm = config.depth.sublayer_orders(), config.norm.is_pre_norm
    for index, (order, (width, output_width)) in enumerate(
        zip(orders, config.block_widths, strict=True)
    ):
        sublayers: dict[str, nn.Module] = {}
        norms: dict[str, nn.Module] = {}
        depth_averages: dict[str, nn.Module] = {}
        output_widths: dict[str, int] = {}
        for letter_index, letter in enumerate(order):
            name = nth_name(SUBLAYER_NAMES[letter], order[: letter_index + 1].count(letter))
            num_outputs += 1
            depth_average = config.residual.build_depth_average(num_outputs)
            if depth_average is not None:
                depth_averages[name] = depth_average
            input_width, width = width, output_width if letter == "s" else width
            output_widths[name] = width
            owner = config.depth.owner_block(index, letter)
            if owner < index:
                sublayers[name] = blocks[owner].sublayers[name]
                norms[name] = blocks[owner].norms[name]
                continue
            skip = index == 0 and not sublayers and config.norm.skips_first_norm
            sublayers[name] = _build_sublayer(config, index, letter, input_width, width)
            norm_width = input_width if is_pre_norm else width
            norms[name] = nn.Identity() if skip else config.norm.build(norm_width)
        dropout = block_dropout(config.dropout, index + 1 == len(orders))
        residual_function = config.residual.residual_function(index)
        block = Block(
            sublayers, norms, depth_averages, is_pre_norm, dropout, residual_function, output_widths
        )
        if config.bottleneck is not None:
            block = BottleneckBlock(
                block, config.bottleneck.build_projections(config.width, config.norm)
            )
        blocks.append(block)
    return blocks


def _build_sublayer(
    config: EncoderConfig, block: int, letter: str, input_width: int, output_width: int
) -> nn.Module:
    norm, positions, mixer = config.norm, config.positions, config.mixer_at(block)
    if letter == "f":
        return config.feed_forward_at(block).build(output_width, norm)
    if letter == "c":
        assert isinstance(mixer, AttentionConfig), "DecoderConfig allows no other mixer"
        return mixer.build_cross_attention(output_width, norm)
    if config.bottleneck is None:
        return mixer.build_sublayer(input_width, output_width, positions, norm, config.visibility)
    assert isinstance(mixer, AttentionConfig), "EncoderConfig allows no other mixer in a bottleneck"
    projection = config.bottleneck.build_qkv_projection(config.width, mixer.bias, norm)
    return mixer.build(output_width, positions, norm, projection)


def get_blocks(encoder: Encoder) -> list[Block]:
    """Return the blocks of an encoder as a typed list."""
    return [cast(Block, block) for block in encoder.blocks]
