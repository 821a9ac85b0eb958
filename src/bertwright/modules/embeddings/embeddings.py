"""Embeddings: the input of the first block."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.modules.attention.positions import PositionEncoding
from bertwright.modules.dropout import Dropout
from bertwright.modules.dropout_rng import DropoutRng, embedding_dropout, word_dropout
from bertwright.modules.embedding_lookup import embedding_lookup, empty_embedding
from bertwright.modules.hooks import HookPoint, tap
from bertwright.modules.norms import NormConfig
from bertwright.modules.parameter_roles import ParameterRole
from bertwright.modules.token_tensors import TokenInfo


class EmbeddingsConfig(Config):
    """The embeddings of an encoder.

    - ``segments``: number of segment types, 0 for none
    - ``languages``: codes of the languages with an embedding, which is added at every position
      (XLM)
    - ``tasks``: number of training tasks with an embedding; inference uses the first (ERNIE 2.0)
    - ``norm``: normalise the sum (BERT; not GPT)
    - ``scaled``: multiply token embeddings by the square root of the width (Vaswani et al. 2017,
      Transformer-XL)
    - ``query_vector``: add a learned vector for query tokens (XLNet)
    - ``embedding_dropout``: rate at which tokens are dropped for a whole step (Merity et al. 2018)
    - ``word_dropout``: rate at which the tokens of single positions are dropped (Iyyer et al. 2015)
    """

    segments: int = Field(default=0, ge=0, le=1_024)
    languages: tuple[str, ...] = Field(default=(), max_length=65_536)
    tasks: int = Field(default=0, ge=0, le=1_024)
    norm: bool = True
    scaled: bool = False
    query_vector: bool = False
    embedding_dropout: float = Field(default=0.0, ge=0, lt=1)
    word_dropout: float = Field(default=0.0, ge=0, lt=1)

    has_single_table: ClassVar[bool] = True
    """True if the embeddings are rows of one table, which other modules may share."""

    reads_neighbours: ClassVar[bool] = False
    """True if an embedding depends on the neighbouring tokens."""

    def table_width(self, width: int) -> int:
        """Return the width of the token table in a model of this width."""
        return width

    def sum_width(self, width: int) -> int:
        """Return the width at which positions and segments are added."""
        return self.table_width(width)

    def build(self, vocab_size: int, width: int) -> nn.Module:
        """Build a module from token_ids (...) int64 to (..., width)."""
        return empty_embedding(vocab_size, width)

    def build_neighbour_projection(self, width: int) -> nn.Module | None:
        """Build the projection that combines neighbouring tokens; None if there is none."""
        return None

    def flops(self, width: int) -> float:
        """Return the FLOPs per token in a model of this width."""
        return 0.0


class TokenEmbeddingsConfig(EmbeddingsConfig):
    """A token table as wide as the model."""

    kind: Literal["tokens"] = "tokens"


class FactorisedEmbeddingsConfig(EmbeddingsConfig):
    """A narrow token table and a projection to the model's width (Lan et al. 2020).

    Positions, segments, languages and the norm have the narrow width, as in ALBERT.
    """

    kind: Literal["factorised"] = "factorised"
    width: int = Field(default=128, ge=1, le=65_536)

    def table_width(self, width: int) -> int:
        return self.width

    def flops(self, width: int) -> float:
        return 0.0 if self.width == width else 2 * self.width * width


class TrigramEmbeddingsConfig(EmbeddingsConfig):
    """A narrow token table; the next, current and previous token are projected together.

    Beyond the ends of a document the embeddings are 0 (Sun et al. 2020, section 3.1).
    """

    kind: Literal["trigrams"] = "trigrams"
    width: int = Field(default=128, ge=1, le=65_536)

    reads_neighbours: ClassVar[bool] = True

    def table_width(self, width: int) -> int:
        return self.width

    def sum_width(self, width: int) -> int:
        return width

    def build_neighbour_projection(self, width: int) -> nn.Module:
        return TrigramProjection(self.width, width)

    def flops(self, width: int) -> float:
        return 2 * 3 * self.width * width


class Embeddings(nn.Module):
    """The sum of token, position, segment, language and task embeddings.

    Then come norm, dropout and, if the sum is narrower than ``width``, a projection. ``positions``
    is the encoder's position encoding; its table, if any, is part of this module. The result is
    repeated ``num_copies`` times along the width.
    """

    parameter_roles: ClassVar[dict[str, ParameterRole]] = {"query_vector": ParameterRole("vector")}
    is_before_blocks: ClassVar[bool] = True

    def __init__(
        self,
        config: EmbeddingsConfig,
        norm: NormConfig,
        positions: PositionEncoding,
        width: int,
        vocab_size: int,
        dropout: Dropout,
        num_copies: int = 1,
    ) -> None:
        super().__init__()
        table_width, sum_width = config.table_width(width), config.sum_width(width)
        self.tokens = config.build(vocab_size, table_width)
        self.embedding_dropout, self.word_dropout = config.embedding_dropout, config.word_dropout
        self.neighbour_projection = config.build_neighbour_projection(width)
        self.segments = empty_embedding(config.segments, sum_width) if config.segments else None
        self.languages = (
            empty_embedding(len(config.languages), sum_width) if config.languages else None
        )
        self.tasks = empty_embedding(config.tasks, sum_width) if config.tasks else None
        self.positions = positions
        self.query_vector = nn.Parameter(torch.empty(table_width)) if config.query_vector else None
        self.scale = table_width**0.5 if config.scaled else None
        self.sum = EmbeddingSum(norm.build(sum_width) if config.norm else nn.Identity(), dropout)
        self.up_projection = nn.Linear(sum_width, width) if sum_width != width else None
        self.num_copies = num_copies

    def forward(
        self,
        token_ids: Tensor,
        token_info: TokenInfo,
        dropout_rng: DropoutRng | None = None,
        hooks: HookPoint | None = None,
    ) -> Tensor:
        """Embed token_ids (B, L) int64 as (B, L, D)."""
        x = embedding_dropout(
            self.look_up(token_ids), token_ids, self.embedding_dropout, dropout_rng, 1
        )
        x = word_dropout(x, self.word_dropout, dropout_rng, 2)
        x = tap(hooks, "tokens", x)
        if self.query_vector is not None and token_info.is_query_stream is not None:
            x = torch.where(token_info.is_query_stream[..., None], self.query_vector, x)
        if self.scale is not None:
            x = x * self.scale
        if self.neighbour_projection is not None:
            x = self.neighbour_projection(x, token_info)
        embeddings = {
            "positions": self.positions.position_embedding(token_info),
            "segments": _type_embedding(self.segments, token_info.segment_ids),
            "languages": _type_embedding(self.languages, token_info.language_ids),
            "tasks": _type_embedding(self.tasks, token_info.task_ids),
        }
        added = [
            tap(hooks, n, embedding.to(x.dtype))
            for n, embedding in embeddings.items()
            if embedding is not None
        ]
        add = self.sum if hooks is None else self.sum.forward
        x = add(x, added, dropout_rng, hooks)
        if self.up_projection is not None:
            x = tap(hooks, "projection", self.up_projection(x))
        if self.num_copies > 1:
            x = x.repeat(1, 1, self.num_copies)
        return tap(hooks, "output", x)

    @property
    def table(self) -> Tensor:
        """Return the token table (V, E), or else the first parameter of the token embeddings."""
        return next(self.tokens.parameters())

    def look_up(self, token_ids: Tensor) -> Tensor:
        """Return the token embeddings (..., E) of token_ids (...) int64, without positions."""
        if isinstance(self.tokens, nn.Embedding):
            return embedding_lookup(self.tokens.weight, token_ids)
        return self.tokens(token_ids)


def _type_embedding(embedding: nn.Embedding | None, index: Tensor | None) -> Tensor | None:
    """Return the embeddings (B, L, E) of type IDs; (1, E) if there are no IDs or only one type."""
    if embedding is None:
        return None
    if index is None or len(embedding.weight) == 1:
        return embedding.weight[:1]
    return embedding_lookup(embedding.weight, index)


class TrigramProjection(nn.Module):
    """A projection of the next, current and previous embedding, (B, L, E) to (B, L, D)."""

    def __init__(self, token_width: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(3 * token_width, width)

    def forward(self, x: Tensor, token_info: TokenInfo) -> Tensor:
        later = nn.functional.pad(x[:, 1:], (0, 0, 0, 1))
        earlier = nn.functional.pad(x[:, :-1], (0, 0, 1, 0))
        documents = token_info.document_ids
        if documents is not None:
            is_same = (documents[:, 1:] == documents[:, :-1])[..., None]
            later = later * nn.functional.pad(is_same, (0, 0, 0, 1))
            earlier = earlier * nn.functional.pad(is_same, (0, 0, 1, 0))
        return self.dense(torch.cat((later, x, earlier), dim=-1))


class EmbeddingSum(nn.Module):
    """The sum of the embeddings, with norm and dropout."""

    def __init__(self, norm: nn.Module, dropout: Dropout) -> None:
        super().__init__()
        self.norm, self.dropout = norm, dropout

    def forward(
        self,
        x: Tensor,
        embeddings: Sequence[Tensor],
        dropout_rng: DropoutRng | None = None,
        hooks: HookPoint | None = None,
    ) -> Tensor:
        """Add the embeddings, broadcast to (B, L, D), to x."""
        for embedding in embeddings:
            x = x + embedding
        return self.dropout(self.norm(tap(hooks, "sum", x)), dropout_rng, 0)
