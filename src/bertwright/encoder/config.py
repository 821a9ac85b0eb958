"""The configuration of an encoder: a choice on each axis, and properties that follow from them."""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Self

from pydantic import Field, model_validator

from bertwright.core.config import Settings
from bertwright.encoder.bottleneck import BottleneckConfig
from bertwright.encoder.depth import DepthConfig, StackConfig
from bertwright.encoder.pruned_sizes import PrunedSizes
from bertwright.encoder.residual import AdditiveResidualConfig, ResidualConfig
from bertwright.encoder.value_embeddings import ValueEmbeddingsConfig
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.fixed_patterns import FixedPatternsConfig
from bertwright.modules.attention.lsh_attention import LSHAttentionConfig
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    Visibility,
    is_split_by_direction,
    scan_directions,
)
from bertwright.modules.attention.mask.windows import SlidingWindowConfig
from bertwright.modules.attention.positions import LearnedPositionsConfig, PositionsConfig
from bertwright.modules.attention.random_features import RandomFeaturesConfig
from bertwright.modules.dropout import DropoutConfig, has_dropout
from bertwright.modules.embeddings.adaptive import AdaptiveEmbeddingsConfig
from bertwright.modules.embeddings.characters import CharacterEmbeddingsConfig
from bertwright.modules.embeddings.embeddings import EmbeddingsConfig, TokenEmbeddingsConfig
from bertwright.modules.embeddings.ngrams import NgramEmbeddingsConfig
from bertwright.modules.feed_forward import FeedForwardConfig, GELUConfig
from bertwright.modules.initialisation import InitialisationConfig, PublishedInitialisationConfig
from bertwright.modules.mixer import MixerConfig
from bertwright.modules.norms import LayerNormConfig, NormConfig
from bertwright.modules.recurrent.gru import GRUConfig
from bertwright.modules.recurrent.lstm import LSTMConfig

REGISTERED_KINDS = (
    AdaptiveEmbeddingsConfig,
    CharacterEmbeddingsConfig,
    FixedPatternsConfig,
    GRUConfig,
    LSHAttentionConfig,
    LSTMConfig,
    NgramEmbeddingsConfig,
    RandomFeaturesConfig,
)
"""Modules that are imported only to register their kinds."""


class EncoderConfig(Settings):
    """The axes of an encoder; the defaults are BERT's."""

    width: int = Field(default=768, ge=1, le=65_536)
    depth: DepthConfig = StackConfig()
    embeddings: EmbeddingsConfig = TokenEmbeddingsConfig()
    value_embeddings: ValueEmbeddingsConfig | None = None
    """Further token embeddings, added to the values of attention; None for none."""
    positions: PositionsConfig = LearnedPositionsConfig()
    visibility: Visibility = BidirectionalVisibility()
    sliding_window: SlidingWindowConfig | None = None
    mixer: MixerConfig = AttentionConfig()
    feed_forward: FeedForwardConfig = GELUConfig()
    norm: NormConfig = LayerNormConfig()
    residual: ResidualConfig = AdditiveResidualConfig()
    bottleneck: BottleneckConfig | None = None
    dropout: DropoutConfig = 0.0
    output_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout rate after the last block and the final norm."""
    initialisation: InitialisationConfig = PublishedInitialisationConfig()
    pruned_sizes: PrunedSizes | None = None
    memory_length: int = Field(default=0, ge=0, le=1 << 20)
    """Number of earlier tokens kept from step to step; 1 carries a recurrent state."""

    @property
    def sliding_window_positions(self) -> PositionsConfig:
        """Return the position encoding of the blocks with a sliding window."""
        if self.sliding_window is None or self.sliding_window.base is None:
            return self.positions
        return self.positions.model_copy(update={"base": self.sliding_window.base})

    @property
    def is_contextual(self) -> bool:
        """Return whether hidden states depend on other tokens, unlike static word vectors."""
        return any("s" in order for order in self.depth.sublayer_orders())

    @property
    def has_dropout(self) -> bool:
        """Return whether the encoder has dropout in training."""
        return (
            has_dropout(self.dropout)
            or self.mixer.has_dropout
            or max(self.embeddings.embedding_dropout, self.embeddings.word_dropout) > 0.0
            or self.positions.has_dropout
            or self.feed_forward.dropout > 0.0
            or self.output_dropout > 0.0
        )

    @property
    def is_stochastic(self) -> bool:
        """Return whether training differs from inference in other ways than dropout."""
        return self.mixer.is_stochastic or self.depth.skips_blocks

    @property
    def has_segments(self) -> bool:
        """Return whether embeddings or relative positions distinguish segments."""
        return self.embeddings.segments > 1 or self.positions.distinguishes_segments

    @property
    def distinguishes_segments(self) -> bool:
        """Return whether embeddings, positions or attention masks depend on segments."""
        return self.has_segments or self.visibility.distinguishes_segments

    @property
    def num_directions(self) -> int:
        """Return the number of parts of a hidden state, 2 if its halves read in two directions."""
        return 2 if is_split_by_direction(self.visibility) else 1

    @property
    def direction_width(self) -> int:
        """Return the width of one part of a hidden state, from which tokens are predicted."""
        return self.width // self.num_directions

    @property
    def token_embedding_width(self) -> int:
        """Return the width of the token table."""
        return self.embeddings.table_width(self.direction_width)

    @property
    def hidden_widths(self) -> list[int]:
        """Return the widths of the hidden states before, between and after the blocks."""
        embeddings_width = self.embeddings.sum_width(self.direction_width) * self.num_directions
        return self.mixer.hidden_widths(
            embeddings_width, self.width, len(self.depth.sublayer_orders())
        )

    @property
    def embeddings_width(self) -> int:
        """Return the width of the embeddings, which are repeated for each direction."""
        return self.hidden_widths[0] // self.num_directions

    @property
    def block_widths(self) -> list[tuple[int, int]]:
        """Return the input and output width of the sublayers of every block."""
        if self.bottleneck is not None:
            return [(self.bottleneck.width, self.bottleneck.width)] * len(
                self.depth.sublayer_orders()
            )
        return list(pairwise(self.hidden_widths))

    @property
    def last_block_width(self) -> int:
        """Return the output width within the last block; the model's if there are no blocks."""
        return self.block_widths[-1][1] if self.block_widths else self.width

    def mixer_at(self, block: int) -> MixerConfig:
        """Return the mixer of a block."""
        if self.pruned_sizes is None or self.pruned_sizes.heads is None:
            return self.mixer
        heads, (_, width) = self.pruned_sizes.heads[block], self.block_widths[block]
        sizes = {"heads": heads, "width": heads * self.mixer.head_shape(width).head_width}
        return self.mixer.model_copy(update=sizes)

    def feed_forward_at(self, block: int) -> FeedForwardConfig:
        """Return the feed-forward of a block."""
        if self.pruned_sizes is None or self.pruned_sizes.units is None:
            return self.feed_forward
        return self.feed_forward.model_copy(update={"width": self.pruned_sizes.units[block]})

    @property
    def max_lookback(self) -> int | None:
        """Return how many positions before a sequence its tokens attend to; None if unlimited."""
        return None if self.mixer.is_recurrent else self.memory_length or None

    @property
    def carries_backward(self) -> bool:
        """Return whether a recurrent state is carried from the end of a text to its start."""
        return self.memory_length > 0 and scan_directions(self.visibility) == ("backward",)

    @property
    def supports_cache(self) -> bool:
        """Return whether a sequence can be read in parts: every block has keys and values."""
        return self.mixer.supports_cache and self.depth.runs_every_block

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        """Raise ValueError if two choices do not fit together."""
        optional_axes = (
            self.bottleneck,
            self.pruned_sizes,
            self.sliding_window,
            self.value_embeddings,
        )
        conflicts = chain(
            *(axis.conflicts(self) for axis in (self.mixer, self.positions, self.feed_forward)),
            self._memory_conflicts(),
            *(axis.conflicts(self) for axis in optional_axes if axis is not None),
            *(axis.conflicts(self) for axis in (self.depth, self.residual, self.norm)),
        )
        for sentence in conflicts:
            raise ValueError(sentence)
        return self

    def _memory_conflicts(self) -> Iterator[str]:
        """Yield a sentence for each reason why the encoder cannot have this memory."""
        if not self.memory_length:
            return
        if self.positions.is_additive or self.positions.is_per_block:
            yield (
                "memory_length needs relative positions, to separate memory and sequence: set "
                "positions.kind to transformer-xl, rotary, alibi or bucketed"
            )
        orders = self.depth.sublayer_orders()
        if not self.mixer.supports_memory or any("s" in order[1:] for order in orders):
            yield (
                "memory_length needs blocks that begin with attention: set mixer.kind and depth so"
            )
        if self.mixer.needs_global_tokens or self.visibility.depends_on_text_length:
            yield (
                "memory_length keeps the end of a text without its start: set "
                "mixer.global_projections to false, and a visibility that does not depend on the "
                "length of a text"
            )
