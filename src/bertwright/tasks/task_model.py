"""Encoders with task heads: with one head for use, with one or several in training."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.encoder.decoder import Decoder, RecurrentDecoder
from bertwright.encoder.encoder import Encoder
from bertwright.models.quantized_weights import QuantizationGrid
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.recipes import Recipe
from bertwright.tasks.adapters import AdaptationConfig, FullFineTuningConfig
from bertwright.tasks.heads.decoder_head import DecoderHeadConfig
from bertwright.tasks.heads.head import HeadConfig, TaskHeadContext
from bertwright.tasks.heads.text_vectors import TextInputs, TextVectorHead


@dataclass(frozen=True)
class HeadSpec:
    """The specification of a task head: its config, number of outputs and kind of output."""

    config: HeadConfig
    num_outputs: int
    output_kind: str = ""

    @property
    def has_decoder(self) -> bool:
        """Whether the outputs are texts, which the pre-trained decoder generates."""
        return isinstance(self.config, DecoderHeadConfig)

    @property
    def uses_lm_head(self) -> bool:
        """Whether the outputs come from the pre-trained language-model head."""
        return self.config.uses_lm_head


@dataclass(frozen=True)
class DecoderInputs:
    """The inputs of a decoder with teacher forcing.

    Attributes:
        token_ids: (B, T) int64, the start token and the target without its last token.
        is_real: (B, T) bool, False at padding and in fillers.
        language_ids: (B, T) int64; None for the first language.
    """

    token_ids: Tensor
    is_real: Tensor
    language_ids: Tensor | None = None


class TaskModel(nn.Module):
    """An encoder with a task head; ``adaptation`` describes what was added to the encoder.

    If the outputs are texts, ``decoder`` and ``lm_head`` generate them, and the head is empty.
    ``lm_head`` also gives the outputs that are weights of tokens.
    """

    def __init__(
        self,
        recipe: Recipe,
        vocab_size: int,
        head_spec: HeadSpec,
        adaptation: AdaptationConfig | None = None,
    ) -> None:
        super().__init__()
        self.recipe, self.head_spec = recipe, head_spec
        self.vocab_size = vocab_size
        self.adaptation = adaptation or FullFineTuningConfig()
        self.encoder = Encoder(recipe.encoder, vocab_size)
        self.adaptation.insert_modules(self.encoder, recipe.encoder)
        context = TaskHeadContext(
            recipe,
            head_spec.num_outputs,
            vocab_size=vocab_size,
            num_adapters=len(self.encoder.knowledge_adapters),
        )
        self.head = head_spec.config.build(context)
        self.decoder, self.lm_head = None, None
        if head_spec.has_decoder:
            self.decoder = build_decoder(recipe, self.encoder)
        if head_spec.uses_lm_head:
            self.lm_head = build_lm_head(recipe, self.encoder, vocab_size)

    def forward(
        self,
        token_ids: Tensor,
        token_info: TokenInfo,
        positions: Tensor | None = None,
        output_lengths: Sequence[int] = (),
    ) -> Tensor:
        """Map token ids (B, L) int64 to float32 outputs (B, K), or (M, K) at flat ``positions``."""
        output_positions = self.head.output_positions(token_ids, token_info.document_ids, positions)
        states = self.head.layers.hidden_states(
            self.encoder, token_ids, token_info, output_positions=output_positions
        )
        return self.head_outputs(states, token_ids, token_info, positions, output_lengths)

    def head_outputs(
        self,
        hidden_states: Tensor,
        token_ids: Tensor,
        token_info: TokenInfo,
        positions: Tensor | None = None,
        output_lengths: Sequence[int] = (),
    ) -> Tensor:
        """Map the hidden states that the head reads to float32 outputs; see :meth:`forward`."""
        document_ids = token_info.document_ids
        if isinstance(self.head, TextVectorHead):
            table = self.encoder.embeddings.table
            inputs = TextInputs(
                token_ids, is_real(token_ids, document_ids), positions, self.lm_head, table
            )
            return self.head.represent(hidden_states, inputs)
        output_positions = self.head.output_positions(token_ids, document_ids, positions)
        return self.head(
            hidden_states,
            document_ids,
            output_lengths,
            token_ids=tokens_at(token_ids, output_positions),
            segment_ids=token_info.segment_ids,
        )

    @property
    def head_config(self) -> HeadConfig:
        """Config of the head."""
        return self.head_spec.config

    @property
    def grids(self) -> dict[str, QuantizationGrid]:
        """Quantization grids by parameter name, for parameters with a known grid."""
        return {f"encoder.{n}": grid for n, grid in self.adaptation.grids(self.encoder).items()}


def build_decoder(recipe: Recipe, encoder: Encoder) -> Decoder | RecurrentDecoder:
    """Build the decoder of a recipe, which shares the token embeddings of the encoder."""
    assert recipe.decoder is not None, "the recipe has a decoder"
    return recipe.decoder.build(recipe.encoder, encoder)


def build_lm_head(recipe: Recipe, encoder: Encoder, vocab_size: int) -> LMHead:
    """Build the LM head of a recipe, tied to the encoder's embeddings if the recipe says so."""
    lm_head = recipe.output.build(recipe.encoder, vocab_size)
    lm_head.tie_weights(encoder.embeddings)
    return lm_head


def tokens_at(token_ids: Tensor, positions: Tensor | None) -> Tensor | None:
    """Return the tokens (M,) of token_ids (B, L) at flat positions (M,); None without positions."""
    return None if positions is None else token_ids.flatten()[positions]


def is_real(token_ids: Tensor, document_ids: Tensor | None) -> Tensor:
    """Return whether each position of token_ids (B, L) holds a token, (B, L) bool."""
    if document_ids is None:
        return torch.ones_like(token_ids, dtype=torch.bool)
    return document_ids >= 0
