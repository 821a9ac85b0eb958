"""The decoder: a second stack of the same blocks that attends to the encoder's output.

Every block has a cross-attention sublayer, letter c in its order. Otherwise the decoder is a causal
encoder that shares the token embeddings of the encoder (Vaswani et al. 2017).
"""

from collections.abc import Iterator

from pydantic import Field, field_validator
from torch import Tensor

from bertwright.core.config import Settings
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import StackConfig
from bertwright.encoder.encoder import Encoder
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import CausalVisibility
from bertwright.modules.attention.positions import PositionsConfig
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo

DECODER_STREAM = 1000
"""Dropout stream of a decoder within a step; larger than any number of blocks."""


class DecoderConfig(Settings):
    """Settings of a decoder that differ from its encoder's.

    ``layers``, ``positions`` and ``mixer`` are the encoder's if None. ``order`` is the order of
    sublayers in a block. A decoder is causal and has no segment or task embeddings.
    """

    layers: int | None = Field(default=None, ge=1, le=1_024)
    order: str = "scf"
    positions: PositionsConfig | None = None
    mixer: AttentionConfig | None = None

    @field_validator("order")
    @classmethod
    def _check_order(cls, order: str) -> str:
        if set(order) - set("scf") or order.count("s") > 1 or order.count("c") != 1:
            raise ValueError(
                f"{order!r} must hold one c (cross-attention), at most one s (attention), and f "
                f"(feed-forward)"
            )
        return order

    def conflicts(self, encoder: EncoderConfig) -> Iterator[str]:
        """Yield a sentence for each reason why an encoder cannot have this decoder."""
        if not isinstance(encoder.depth, StackConfig):
            yield "it needs a plain stack of blocks: set encoder.depth.kind to stack"
        mixer = self.mixer or encoder.mixer
        is_attention = isinstance(mixer, AttentionConfig) and mixer.gate is None
        if not is_attention or mixer.needs_global_tokens:
            yield (
                "it needs plain attention: set encoder.mixer.kind to attention, its gate to null, "
                "global_projections to false, or set decoder.mixer.kind"
            )
        if encoder.residual.is_reversible:
            yield "a decoder cannot be reversible: choose another encoder.residual"
        is_local = encoder.sliding_window is not None or encoder.bottleneck is not None
        if encoder.memory_length or is_local:
            yield (
                "it attends to whole sequences: set encoder.memory_length to 0, sliding_window and "
                "bottleneck to null"
            )
        embeddings = encoder.embeddings
        if not embeddings.has_single_table:
            yield "it shares the token table: choose embeddings with a single table, such as tokens"
        if embeddings.reads_neighbours:
            yield "embeddings must not read the next token: choose another encoder.embeddings.kind"

    def stack_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the configuration of the decoder as a stack.

        Errors: ValueError if this encoder cannot have a decoder.
        """
        mixer = self.mixer or encoder.mixer
        for sentence in self.conflicts(encoder):
            raise ValueError(f"decoder: {sentence}")
        assert isinstance(encoder.depth, StackConfig)
        layers = self.layers or encoder.depth.layers
        depth = encoder.depth.model_copy(update={"layers": layers, "order": self.order})
        plain = {"segments": 0, "tasks": 0, "query_vector": False}
        return encoder.copy_with(
            "decoder",
            depth=depth,
            embeddings=encoder.embeddings.model_copy(update=plain),
            positions=self.positions or encoder.positions,
            mixer=mixer,
            pruned_sizes=None,
            visibility=CausalVisibility(),
        )


class Decoder(Encoder):
    """A module from the tokens so far and the encoder's output to hidden states.

    It shares the encoder's hooks; names of its values begin with ``decoder``.
    """

    def __init__(
        self, config: DecoderConfig, encoder_config: EncoderConfig, encoder: Encoder
    ) -> None:
        vocab_size = len(encoder.embeddings.table)
        super().__init__(config.stack_config(encoder_config), vocab_size)
        self.embeddings.tokens = encoder.embeddings.tokens
        self.thread_taps, self.prefix = encoder.thread_taps, "decoder."

    def decode(
        self,
        token_ids: Tensor,
        source: CrossAttentionSource,
        position_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        dropout_rng: DropoutRng | None = None,
    ) -> Tensor:
        """Return hidden states (B, T, D) that predict the token after each of token_ids (B, T).

        ``position_ids`` (B, T) are consecutive if None; ``language_ids`` (B, T) are the first
        language if None.
        """
        index = TokenInfo.from_token_ids(token_ids).index
        token_info = TokenInfo(index, position_ids, language_ids=language_ids)
        decoder_rng = None if dropout_rng is None else dropout_rng.for_block(DECODER_STREAM)
        return self(token_ids, token_info, dropout_rng=decoder_rng, source=source)
