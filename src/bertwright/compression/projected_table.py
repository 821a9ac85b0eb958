"""A table of vectors for other pieces, and of another width, from that of a trained model."""

import torch
from torch import Tensor, nn

from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import Tokenizer


def has_table(model: TextModel) -> bool:
    """Whether the vectors of pieces are the rows of one table."""
    return isinstance(model.model.encoder.embeddings.pieces, nn.Embedding)


@torch.no_grad()
def projected_table(model: TextModel, tokenizer: Tokenizer, width: int) -> Tensor:
    """Vectors (V, width) float32, which differ from each other in the plane of this width in which
    those of the model differ most (Eckart and Young 1936); where it is wider, the rest is 0.

    A piece that the model does not have is the mean of those by which the model reads it.
    """
    table = model.model.embedding.detach().double().cpu()
    if tokenizer.hash == model.tokenizer.hash:
        vectors = table[: tokenizer.size]
    else:
        vectors = table.new_zeros(tokenizer.size, table.shape[1])
        for token in tokenizer.ids.tolist():
            vectors[token] = table[_read(tokenizer, token, model.tokenizer)].mean(0)
    found = vectors @ main_axes(vectors, width)
    return nn.functional.pad(found, (0, width - found.shape[1])).float()


def main_axes(vectors: Tensor, number: int) -> Tensor:
    """Of vectors (N, D) the right singular ones of the greatest values, (D, number) or fewer; the
    number in each that is farthest from 0 is positive."""
    # The eigenvectors of the squares are these, without the left ones.
    _, axes = torch.linalg.eigh(vectors.T @ vectors)
    axes = axes.flip(1)[:, :number]
    return axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()


def _read(tokenizer: Tokenizer, piece: int, other: Tokenizer) -> list[int]:
    """The pieces of another tokenizer for what a piece says, behind a word."""
    for role in ("pad", "unknown", "start", "end", "mask"):
        if piece == getattr(tokenizer.specials, role):
            return [getattr(other.specials, role)]
    written = tokenizer.decode([piece]).strip() or tokenizer.piece(piece)
    ids, first = other.words(["a", written])
    return ids[first[1] :]
