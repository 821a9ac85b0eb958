"""Value embeddings: further token embeddings, which are added to the values of attention.

They keep the identity of tokens in blocks whose input has lost it (Zhou et al. 2024 add the values
of the first block instead). The tables and the blocks that read them are those of modded-nanogpt
(Jordan et al. 2024), which also has a learned factor of the values themselves.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Settings
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.token_tensors import TokenInfo

if TYPE_CHECKING:
    from bertwright.encoder.config import EncoderConfig


class ValueEmbeddingsConfig(Settings):
    """Value embeddings of the first and the last ``tables`` blocks.

    Of n blocks, block i and block n - ``tables`` + i share a table, each with a separate factor.
    """

    tables: int = Field(default=1, ge=1, le=512)

    def table_of_block(self, block: int, num_blocks: int) -> int | None:
        """Return the index of the table that a block reads; None for a block in the middle."""
        if block < self.tables:
            return block
        last = block - (num_blocks - self.tables)
        return last if last >= 0 else None

    def conflicts(self, encoder: "EncoderConfig") -> Iterator[str]:
        """Yield a sentence for each reason why this choice does not fit the rest of an encoder."""
        orders, mixer = encoder.depth.sublayer_orders(), encoder.mixer
        if 2 * self.tables > len(orders):
            yield (
                f"value_embeddings.tables is {self.tables}: a table is for two of {len(orders)} "
                f"blocks, so set it to {len(orders) // 2} or less, or value_embeddings to null"
            )
        blocks = (i for i in range(len(orders)) if self.table_of_block(i, len(orders)) is not None)
        if any("s" not in orders[block] for block in blocks):
            yield (
                "value_embeddings need attention in the first and the last blocks: choose another "
                "depth, or set value_embeddings to null"
            )
        if not isinstance(mixer, AttentionConfig) or mixer.needs_global_tokens:
            yield (
                "value_embeddings need attention with one projection for all tokens: set "
                "mixer.kind to attention and mixer.global_projections to false, or "
                "value_embeddings to null"
            )
        if encoder.memory_length or encoder.residual.is_reversible:
            yield (
                "value_embeddings need all tokens and stored activations: set memory_length to 0 "
                "and residual.kind to plain, or value_embeddings to null"
            )
        if encoder.pruned_sizes is not None and encoder.pruned_sizes.heads is not None:
            yield (
                "value_embeddings have the width of all heads: keep them, or set value_embeddings "
                "to null"
            )


class ValueEmbeddings(nn.Module):
    """The tables of an encoder's value embeddings, and a factor for every block that reads one."""

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"factors": ParameterRole("gate")}
    is_before_blocks: ClassVar[bool] = True

    def __init__(
        self, config: ValueEmbeddingsConfig, num_blocks: int, vocab_size: int, width: int
    ) -> None:
        super().__init__()
        self.table_of_block = [config.table_of_block(i, num_blocks) for i in range(num_blocks)]
        self.tables = nn.ModuleList(
            empty_embedding(vocab_size, width) for _ in range(config.tables)
        )
        self.factors = nn.Parameter(torch.empty(2 * config.tables))

    def forward(self, token_ids: Tensor, token_info: TokenInfo) -> list[Tensor | None]:
        """Return what is added to the values of each block, (B, L, H * d), or None.

        Query streams read nothing, as their token ids are what they predict.
        """
        embeddings = [embedding_lookup(table.weight, token_ids) for table in self._tables()]
        if token_info.is_query_stream is not None:
            is_text = ~token_info.is_query_stream[..., None]
            embeddings = [embedding * is_text for embedding in embeddings]
        factors = iter(self.factors.unbind())
        return [
            None if table is None else next(factors) * embeddings[table]
            for table in self.table_of_block
        ]

    def _tables(self) -> Iterator[nn.Embedding]:
        for table in self.tables:
            assert isinstance(table, nn.Embedding)
            yield table
