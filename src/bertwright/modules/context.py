"""Inputs of blocks and mixers other than the hidden states."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from bertwright.modules.attention.cache import Past
from bertwright.modules.attention.mask import AttentionMask, ScanDirection
from bertwright.modules.attention.mask.token_runs import TokenRuns
from bertwright.modules.attention.positions import RelativePositions, RotaryAngles
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.hooks import HookPoint, child_hooks


@dataclass(frozen=True, eq=False)
class CrossAttentionContext:
    """Encoder hidden states (B, S, D) that a decoder attends to, and their mask."""

    hidden_states: Tensor
    mask: AttentionMask


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """Inputs of every mixer in one pass, shared by all blocks with the same attention rule.

    ``key_rotary`` is set if keys have other positions than queries, because memory precedes them.
    ``runs`` are the token runs of a recurrent mixer, by direction.
    """

    mask: AttentionMask
    rotary: RotaryAngles | None = None
    key_rotary: RotaryAngles | None = None
    relative_positions: RelativePositions | None = None
    runs: Mapping[ScanDirection, TokenRuns] = field(default_factory=dict[ScanDirection, TokenRuns])
    cross_attention: CrossAttentionContext | None = None

    @property
    def score_bias(self) -> Tensor | None:
        """Return the bias to add to all attention scores, broadcastable to (B, H, L, L)."""
        return None if self.relative_positions is None else self.relative_positions.bias


class SublayerOutputs:
    """A record of the outputs of all sublayers so far, to which the blocks of a pass add.

    It is not a list, because FSDP copies those among the inputs of a block.
    """

    def __init__(self, embeddings: Tensor) -> None:
        self.values = [embeddings]


@dataclass(frozen=True, eq=False)
class BlockContext:
    """Inputs of a block in one pass, or of one of its mixers.

    ``past`` holds the earlier tokens of the block. ``sublayer_outputs``, if set, collects the
    outputs of all sublayers. ``output_positions`` (M,) are the flat positions that are needed after
    the block; None for all. ``token_values`` (B, L, H * d) are added to the values of attention.
    """

    attention: AttentionContext
    dropout_rng: DropoutRng | None = None
    hooks: HookPoint | None = None
    past: Past | None = None
    sublayer_outputs: SublayerOutputs | None = None
    output_positions: Tensor | None = None
    token_values: Tensor | None = None

    def for_mixer(self, name: str, past: Past | None) -> "BlockContext":
        """Return the context of the mixer with this name."""
        hooks = child_hooks(self.hooks, name)
        values = self.token_values if name == "attention" else None
        return BlockContext(self.attention, self.dropout_rng, hooks, past, token_values=values)

    def gather_positions(self, x: Tensor) -> tuple[Tensor, "BlockContext"]:
        """Return x (B, L, D) at ``output_positions``, as (M, D), and the context for them."""
        assert self.output_positions is not None, "all positions are needed"
        rng = self.dropout_rng
        if rng is not None:
            rng = rng.at_positions(self.output_positions, x.shape[1])
        selected = x.flatten(0, 1).index_select(0, self.output_positions)
        return selected, replace(self, dropout_rng=rng, output_positions=None)
