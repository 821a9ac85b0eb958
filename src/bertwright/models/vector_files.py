"""Vectors of texts as files and as plain data, in each representation for retrieval."""

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.late_chunking import TextChunks
from bertwright.models.retrieval_encoder import FloatMatrix, Representation, TextVectors


def write_vectors(stream: IO[bytes], parts: Sequence[Any], representation: Representation) -> int:
    """Write the vectors of the texts of all parts, in order; return the number of texts.

    Dense vectors are a NumPy array (N, D), token weights a SciPy sparse matrix (N, V) as an ``npz``
    file, and vectors of tokens an ``npz`` file with ``vectors`` (T, D) of all texts and their
    ``lengths`` (N,). There is at least one part.
    """
    match representation:
        case "dense":
            vectors = np.concatenate(parts)
            np.save(stream, vectors)
            return len(vectors)
        case "sparse":
            sp.save_npz(stream, sp.vstack(parts, "csr"))
            return sum(part.shape[0] for part in parts)
        case "late-interaction":
            texts = [vectors for part in parts for vectors in part]
            lengths = np.array([len(vectors) for vectors in texts], np.int64)
            width = texts[0].shape[1] if texts else 0
            joined = np.concatenate([np.empty((0, width), np.float32), *texts])
            np.savez(stream, vectors=joined, lengths=lengths)
            return len(texts)


def write_chunks(stream: IO[bytes], texts: Sequence[TextChunks]) -> FloatMatrix:
    """Write the chunks of texts as an ``npz`` file, and return their vectors.

    It has ``vectors`` (C, D) of all chunks, the index of the text of each, ``texts`` (C,), and its
    characters [start, stop), ``offsets`` (C, 2).
    """
    width = texts[0].vectors.shape[1] if texts else 0
    vectors = np.concatenate([np.empty((0, width), np.float32), *(t.vectors for t in texts)])
    offsets = np.concatenate([np.empty((0, 2), np.int64), *(text.offsets for text in texts)])
    indices = np.repeat(np.arange(len(texts)), [len(text.offsets) for text in texts])
    np.savez(stream, vectors=vectors, texts=indices, offsets=offsets)
    return vectors


def vector_records(vectors: TextVectors, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return the vectors of each text as plain data; the largest token weights come first."""
    if isinstance(vectors, np.ndarray):
        return [{"vector": vector} for vector in vectors.tolist()]
    if isinstance(vectors, sp.csr_matrix):
        rows: Any = vectors
        return [{"weights": _token_weights(row, tokenizer)} for row in rows]
    return [{"vectors": matrix.tolist()} for matrix in vectors]


def _token_weights(row: Any, tokenizer: Tokenizer) -> dict[str, float]:
    """Return the weights of a (1, V) CSR matrix by token."""
    order = np.argsort(-row.data, kind="stable")
    return {tokenizer.id_to_token(int(row.indices[n])): float(row.data[n]) for n in order}
