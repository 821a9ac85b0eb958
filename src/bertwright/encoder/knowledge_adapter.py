"""Knowledge adapters: small transformers beside an encoder (K-Adapter, Wang et al. 2021).

Each reads the hidden states of some layers of the encoder, and does not change them.
"""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Settings
from bertwright.encoder.block import Block
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.depth import StackConfig
from bertwright.encoder.encoder import build_blocks
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import Tiling, build_attention_mask
from bertwright.modules.attention.positions import NoPositionsConfig
from bertwright.modules.context import AttentionContext, BlockContext
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import TokenInfo

ADAPTER_STREAM = 4000
"""Dropout stream of the first adapter layer; larger than any number of blocks of a decoder."""

HEAD_WIDTH = 64


class KnowledgeAdapterShape(Settings):
    """The layers that a knowledge adapter reads, and its size.

    ``layers`` are numbered as in ``embed``: k is the output of block k. ``depth`` is the number of
    transformer layers of each adapter layer, and ``width`` their width.
    """

    layers: tuple[int, ...] = Field(min_length=1)
    depth: int = Field(ge=1, le=1_024)
    width: int = Field(ge=1, le=65_536)


class KnowledgeAdapterLayer(nn.Module):
    """An adapter layer: x + up(transformer(down(x))), (B, L, D) to (B, L, D).

    Its transformer layers are BERT's, and attend to what the encoder attends to.
    """

    def __init__(self, shape: KnowledgeAdapterShape, encoder: EncoderConfig) -> None:
        super().__init__()
        stack = EncoderConfig(
            width=shape.width,
            depth=StackConfig(layers=shape.depth),
            positions=NoPositionsConfig(),
            visibility=encoder.visibility,
            mixer=AttentionConfig(heads=num_heads(shape.width)),
            dropout=encoder.dropout,
        )
        self.visibility = stack.visibility
        self.tiling: Tiling = stack.mixer.tiling
        self.num_heads = num_heads(shape.width)
        self.down = nn.Linear(encoder.width, shape.width)
        self.transformer = nn.ModuleList(build_blocks(stack))
        self.up = nn.Linear(shape.width, encoder.width)

    def forward(
        self, x: Tensor, token_info: TokenInfo, dropout_rng: DropoutRng | None, stream: int
    ) -> Tensor:
        """Map x (B, L, D) to (B, L, D); ``stream`` is the dropout stream of the first layer."""
        mask = build_attention_mask(
            self.visibility, token_info, tiling=self.tiling, num_heads=self.num_heads
        )
        context, states = AttentionContext(mask), self.down(x)
        for index, block in enumerate(self.transformer):
            assert isinstance(block, Block)
            rng = None if dropout_rng is None else dropout_rng.for_block(stream + index)
            states = block(states, BlockContext(context, rng))
        return x + self.up(states)


class KnowledgeAdapter(nn.Module):
    """A stack of adapter layers beside an encoder.

    Each adapter layer reads the sum of a layer of the encoder and the previous adapter layer. (The
    paper, section 3.1, says that they are concatenated; the skip connection needs equal widths, and
    the published program adds them.)
    """

    def __init__(self, shape: KnowledgeAdapterShape, encoder: EncoderConfig) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(KnowledgeAdapterLayer(shape, encoder) for _ in shape.layers)

    def forward(
        self,
        hidden_states: Mapping[int, Tensor],
        token_info: TokenInfo,
        dropout_rng: DropoutRng | None = None,
        stream: int = ADAPTER_STREAM,
    ) -> Tensor:
        """Return the output (B, L, D) of the last adapter layer.

        ``hidden_states`` holds those of the encoder (B, L, D) by layer. ``stream`` is the dropout
        stream of the first adapter layer.
        """
        output = torch.zeros_like(hidden_states[self.shape.layers[0]])
        for index, (number, layer) in enumerate(zip(self.shape.layers, self.layers, strict=True)):
            first_stream = stream + index * self.shape.depth
            output = layer(hidden_states[number] + output, token_info, dropout_rng, first_stream)
        return output

    @property
    def num_streams(self) -> int:
        """Return the number of dropout streams."""
        return self.shape.depth * len(self.layers)


def num_heads(width: int) -> int:
    """Return the number of attention heads of a width: of 64 units each, or the next wider."""
    fitting = (heads for heads in range(width // HEAD_WIDTH, 0, -1) if width % heads == 0)
    return next(fitting, 1)


def why_not_adaptable(encoder: EncoderConfig) -> str | None:
    """Return why knowledge adapters cannot read an encoder; None if they can."""
    if encoder.mixer.is_recurrent or not encoder.is_contextual:
        return (
            "adaptation.kind: knowledge adapters read the layers of a transformer: choose another "
            "adaptation for this encoder"
        )
    if len(set(encoder.hidden_widths)) > 1:
        return (
            "adaptation.kind: knowledge adapters add layers of one width, and this encoder has "
            f"widths {sorted(set(encoder.hidden_widths))}: choose another adaptation"
        )
    return None
