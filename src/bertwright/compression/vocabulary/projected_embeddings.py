"""An embedding table for another vocabulary and width, from that of a trained model."""

import torch
from torch import Tensor, nn

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.text_model import TextModel


def has_embedding_table(model: TextModel) -> bool:
    """Return True if the model has a single embedding table."""
    return isinstance(model.model.encoder.embeddings.tokens, nn.Embedding)


@torch.no_grad()
def project_embeddings(model: TextModel, tokenizer: Tokenizer, width: int) -> Tensor:
    """Return vectors (V, width) float32, projected to their first principal axes (Eckart and Young
    1936); wider ones are padded with 0.

    A token that the model does not have is the mean of the tokens that the model reads it as.
    """
    table = model.model.embedding_table.detach().double().cpu()
    if tokenizer.hash == model.tokenizer.hash:
        vectors = table[: tokenizer.vocab_size]
    else:
        vectors = table.new_zeros(tokenizer.vocab_size, table.shape[1])
        for token in tokenizer.ids.tolist():
            vectors[token] = table[_token_ids_in(tokenizer, token, model.tokenizer)].mean(0)
    projected = vectors @ principal_axes(vectors, width)
    return nn.functional.pad(projected, (0, width - projected.shape[1])).float()


def principal_axes(vectors: Tensor, num_axes: int) -> Tensor:
    """Return the first right singular vectors of vectors (N, D), (D, num_axes) or fewer.

    The entry of the largest absolute value in each is positive.
    """
    # The eigenvectors of the Gram matrix; the left singular vectors are not needed.
    _, axes = torch.linalg.eigh(vectors.T @ vectors)
    axes = axes.flip(1)[:, :num_axes]
    return axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()


def _token_ids_in(tokenizer: Tokenizer, token_id: int, other_tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of another tokenizer for a token, read after a word."""
    for role in ("pad", "unknown", "start", "end", "mask"):
        if token_id == getattr(tokenizer.special_tokens, role):
            return [getattr(other_tokenizer.special_tokens, role)]
    text = tokenizer.decode([token_id]).strip() or tokenizer.id_to_token(token_id)
    ids, first = other_tokenizer.encode_pretokenized(["a", text])
    return ids[first[1] :]
