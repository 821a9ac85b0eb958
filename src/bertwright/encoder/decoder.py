"""Decoders: they predict a text token by token, and attend to the encoder's output."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.encoder.attentional_lstm import AttentionalLSTM
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import StackConfig
from bertwright.encoder.encoder import Encoder, get_blocks
from bertwright.encoder.residual import NoResidualConfig
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import CausalVisibility
from bertwright.modules.attention.positions import NoPositionsConfig, PositionsConfig
from bertwright.modules.dropout import input_dropout
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.embedding_lookup import embedding_lookup
from bertwright.modules.embeddings.embeddings import FactorisedEmbeddingsConfig
from bertwright.modules.hooks import HookPoint, tap
from bertwright.modules.norms import IdentityNormConfig
from bertwright.modules.recurrent.lstm import LSTMConfig
from bertwright.modules.sentence_pooling import Pooling, pool_sentences
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo

DECODER_STREAM = 1000
"""Dropout stream of a decoder within a step; larger than any number of blocks."""


class DecoderConfig(Config):
    """A decoder, which shares the token table of its encoder; the default kind is a transformer."""

    supports_cache: ClassVar[bool] = True
    """True if a text can be decoded in parts, with cached keys and values."""

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return the config that ``{kind: ..., ...}``, a bare kind or settings describe."""
        if isinstance(value, dict) and "kind" not in value:
            value = {"kind": "transformer", **value}
        return super().parse(value)

    @property
    def vector_pooling(self) -> Pooling | None:
        """Return how the source is pooled into one vector; None if all its tokens are read."""
        return None

    def conflicts(self, encoder: EncoderConfig) -> Iterator[str]:
        """Yield a sentence for each reason why an encoder cannot have this decoder."""
        embeddings = encoder.embeddings
        if not embeddings.has_single_table:
            yield "it shares the token table: choose embeddings with a single table, such as tokens"
        if embeddings.reads_neighbours:
            yield "embeddings must not read the next token: choose another encoder.embeddings.kind"

    def require_compatible(self, encoder: EncoderConfig) -> None:
        """Raise ValueError if this encoder cannot have the decoder."""
        for sentence in self.conflicts(encoder):
            raise ValueError(f"decoder: {sentence}")

    def stack_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the configuration of the decoder's blocks as a stack.

        Errors: ValueError if this encoder cannot have the decoder.
        """
        raise TypeError(f"{type(self).__name__} is an axis, not a decoder")

    def cross_attention_flops(
        self, encoder: EncoderConfig, num_targets: float, length: int
    ) -> float:
        """Return the FLOPs per target of attending to a source of this length."""
        raise TypeError(f"{type(self).__name__} is an axis, not a decoder")

    def build(
        self, encoder_config: EncoderConfig, encoder: Encoder
    ) -> "Decoder | RecurrentDecoder":
        """Build the decoder of an encoder."""
        raise TypeError(f"{type(self).__name__} is an axis, not a decoder")


class TransformerDecoderConfig(DecoderConfig):
    """A stack of blocks with cross-attention; the settings are those that differ from the encoder.

    ``layers``, ``positions`` and ``mixer`` are the encoder's if None. ``order`` is the order of
    sublayers in a block. A decoder is causal and has no segment or task embeddings.

    ``source`` is what it attends to: all ``tokens`` of the encoder's output, or the vector of the
    text alone, pooled by ``mean`` or from the start token (``cls``). If ``tied``, the decoder is
    the encoder with cross-attention: all other parameters are shared (Wang et al. 2021).
    """

    kind: Literal["transformer"] = "transformer"
    source: Literal["tokens", "mean", "cls"] = "tokens"
    tied: bool = False
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
        if self.tied and not self._has_encoder_blocks(encoder):
            yield (
                "a tied decoder has the encoder's blocks: leave out layers, order, positions and "
                "mixer, and set encoder.depth.order to sf"
            )
        yield from super().conflicts(encoder)

    @property
    def vector_pooling(self) -> Pooling | None:
        return None if self.source == "tokens" else self.source

    def _has_encoder_blocks(self, encoder: EncoderConfig) -> bool:
        """Return whether the decoder differs from the encoder by cross-attention alone."""
        orders = set(encoder.depth.sublayer_orders())
        is_changed = self.layers or self.positions or self.mixer
        return not is_changed and self.order == "scf" and orders == {"sf"}

    def stack_config(self, encoder: EncoderConfig) -> EncoderConfig:
        self.require_compatible(encoder)
        mixer = self.mixer or encoder.mixer
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
            value_embeddings=None,
            visibility=CausalVisibility(),
        )

    def cross_attention_flops(
        self, encoder: EncoderConfig, num_targets: float, length: int
    ) -> float:
        stack = self.stack_config(encoder)
        num_mixers = sum(order.count("c") for order in stack.depth.sublayer_orders())
        length = length if self.vector_pooling is None else 1
        projections, attention = stack.mixer.flops(stack.width, length)
        return num_mixers * (projections / 2 * (1 + length / num_targets) + attention)

    def build(self, encoder_config: EncoderConfig, encoder: Encoder) -> "Decoder":
        return Decoder(self, encoder_config, encoder)


class LSTMDecoderConfig(DecoderConfig):
    """A recurrent decoder with global attention (Luong et al. 2015; McCann et al. 2017)."""

    kind: Literal["lstm"] = "lstm"
    layers: int = Field(default=2, ge=1, le=1_024)

    supports_cache: ClassVar[bool] = False

    def stack_config(self, encoder: EncoderConfig) -> EncoderConfig:
        self.require_compatible(encoder)
        embeddings = FactorisedEmbeddingsConfig(width=encoder.token_embedding_width, norm=False)
        return EncoderConfig(
            width=encoder.width,
            depth=StackConfig(layers=self.layers, order="s"),
            embeddings=embeddings,
            positions=NoPositionsConfig(),
            visibility=CausalVisibility(),
            mixer=LSTMConfig(biases=2, forget=0.0),
            norm=IdentityNormConfig(),
            residual=NoResidualConfig(),
        )

    def cross_attention_flops(
        self, encoder: EncoderConfig, num_targets: float, length: int
    ) -> float:
        width = encoder.width
        # The fed input, the query, the scores and their sum, and the combination.
        return 8 * width**2 + 2 * width**2 + 4 * length * width + 4 * width**2

    def build(self, encoder_config: EncoderConfig, encoder: Encoder) -> "RecurrentDecoder":
        return RecurrentDecoder(self, encoder_config, encoder)


class Decoder(Encoder):
    """A module from the tokens so far and the encoder's output to hidden states.

    It is a second stack of the encoder's blocks, each with a cross-attention sublayer, letter c in
    its order (Vaswani et al. 2017). It shares the encoder's hooks; names of its values begin with
    ``decoder``.
    """

    def __init__(
        self, config: TransformerDecoderConfig, encoder_config: EncoderConfig, encoder: Encoder
    ) -> None:
        vocab_size = len(encoder.embeddings.table)
        super().__init__(config.stack_config(encoder_config), vocab_size)
        self.embeddings.tokens = encoder.embeddings.tokens
        self.thread_taps, self.prefix = encoder.thread_taps, "decoder."
        self.vector_pooling: Pooling | None = config.vector_pooling
        if config.tied:
            self._tie_weights(encoder)

    def _tie_weights(self, encoder: Encoder) -> None:
        """Share all parameters with the encoder, except those of cross-attention."""
        self.embeddings, self.norm = encoder.embeddings, encoder.norm
        for block, encoder_block in zip(get_blocks(self), get_blocks(encoder), strict=True):
            for name, sublayer in encoder_block.sublayers.items():
                block.sublayers[name], block.norms[name] = sublayer, encoder_block.norms[name]

    def select_source(self, source: CrossAttentionSource) -> CrossAttentionSource:
        if self.vector_pooling is None:
            return source
        states = source.hidden_states
        vector = pool_sentences(states, source.token_info.document_ids, self.vector_pooling)
        token_info = TokenInfo.from_token_ids(states.new_zeros(len(states), 1, dtype=torch.int64))
        return CrossAttentionSource(vector[:, None].to(states.dtype), token_info)

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


class RecurrentDecoder(nn.Module):
    """A recurrent decoder, with the interface of :class:`Decoder` except for its cache.

    It shares the encoder's hooks; its values are ``decoder.embeddings.output`` and
    ``decoder.output``.
    """

    max_length: ClassVar[int | None] = None
    """Maximum number of tokens; None if unlimited."""

    def __init__(
        self, config: LSTMDecoderConfig, encoder_config: EncoderConfig, encoder: Encoder
    ) -> None:
        super().__init__()
        config.require_compatible(encoder_config)
        self.tokens, self.thread_taps = encoder.embeddings.tokens, encoder.thread_taps
        self.dropout = input_dropout(encoder_config.dropout)
        self.network = AttentionalLSTM(
            encoder_config.token_embedding_width, encoder_config.width, config.layers
        )

    def decode(
        self,
        token_ids: Tensor,
        source: CrossAttentionSource,
        position_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        dropout_rng: DropoutRng | None = None,
    ) -> Tensor:
        """Return hidden states (B, T, D); see :meth:`Decoder.decode`. Positions do not matter."""
        decoder_rng = None if dropout_rng is None else dropout_rng.for_block(DECODER_STREAM)
        assert isinstance(self.tokens, nn.Embedding), "LSTMDecoderConfig needs a single table"
        taps = self.thread_taps.current
        hooks = None if taps.is_idle else HookPoint(taps, "decoder.")
        inputs = self.dropout(embedding_lookup(self.tokens.weight, token_ids), decoder_rng, 0)
        inputs = tap(hooks, "embeddings.output", inputs)
        states = self.dropout(self.network(inputs, source), decoder_rng, 1)
        return tap(hooks, "output", states)

    def compile_parts(self, dynamic: bool = False) -> None:
        """Compile nothing: torch.compile would unroll every step."""
