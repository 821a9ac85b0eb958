"""Vectors of a segment of an index on disk, one module per representation."""

from collections.abc import Mapping

from bertwright.models.retrieval_encoder import Representation
from bertwright.retrieval.vectors.dense import DenseSegment
from bertwright.retrieval.vectors.late_interaction import LateInteractionSegment
from bertwright.retrieval.vectors.segment import VectorSegment
from bertwright.retrieval.vectors.sparse import SparseSegment

VECTOR_SEGMENTS: Mapping[Representation, type[VectorSegment]] = {
    "dense": DenseSegment,
    "sparse": SparseSegment,
    "late-interaction": LateInteractionSegment,
}

__all__ = ["VECTOR_SEGMENTS", "VectorSegment"]
