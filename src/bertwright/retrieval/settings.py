"""The settings of a search index."""

from typing import Literal

from pydantic import Field

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.models.retrieval_encoder import Representation

IndexKind = Literal["dense", "sparse", "late-interaction", "bm25", "hybrid"]
VectorType = Literal["float32", "float16", "int8"]


class IndexSettings(Settings):
    """The settings of a search index; all are fixed when it is created.

    Attributes:
        kind: the representation of the model's vectors; ``bm25`` for words without a model;
            ``hybrid`` for both.
        vector_type: the type of stored vectors and weights; ``int8`` scales each vector to its
            largest component.
        dimensions: stored dimensions of a vector, its first ones; None for all. For models trained
            for it (``matryoshka_dims``).
        exact: whether dense vectors are compared with all texts, never through a graph.
        stop_words: the language whose stop words BM25 leaves out, such as ``en``; None for no
            language.
        chunk_tokens: maximum number of tokens of the chunks that texts are split into, for models
            with one vector per text; each is encoded in the context of its text. None for whole
            texts.
        segment_texts: maximum number of texts of a segment.
    """

    kind: IndexKind
    vector_type: VectorType = "float16"
    dimensions: int | None = Field(default=None, ge=1, le=65_536)
    exact: bool = False
    stop_words: str | None = None
    chunk_tokens: int | None = Field(default=None, ge=1, le=1 << 20)
    segment_texts: int = Field(default=65_536, ge=1, le=1 << 20)

    @property
    def uses_model(self) -> bool:
        """Return whether the index holds vectors of a model."""
        return self.kind != "bm25"

    @property
    def uses_words(self) -> bool:
        """Return whether the index holds words for BM25."""
        return self.kind in ("bm25", "hybrid")

    def require_representation(self, representation: Representation | None) -> None:
        """Raise UserError unless a model's representation fits; None is no model."""
        if self.chunk_tokens is not None and representation != "dense":
            raise UserError(
                "chunks are for models with one vector per text: leave --chunk-tokens out"
            )
        if not self.uses_model:
            if representation is not None:
                raise UserError("an index of kind bm25 uses no model: leave --model out")
        elif representation is None:
            raise UserError(
                f"an index of kind {self.kind} needs a model: name its folder with --model, or use "
                f"--kind bm25"
            )
        elif self.kind not in (representation, "hybrid"):
            raise UserError(
                f"the model encodes texts as {representation} vectors, not {self.kind}: use "
                f"--kind {representation}, or hybrid"
            )
