"""Narrower embedding tables: factorised (Lan et al. 2020), or projected for another vocabulary."""

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.encoder.config import EncoderConfig
from bertwright.models.model import Model
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.modules.attention.positions import LearnedPositionsConfig
from bertwright.modules.embeddings.embeddings import (
    FactorisedEmbeddingsConfig,
    TokenEmbeddingsConfig,
)
from bertwright.modules.norms import LayerNorm, LayerNormConfig
from bertwright.tasks.text_encoder import ENCODER_ONLY


@torch.no_grad()
def factorise_embeddings(model: Model, width: int) -> Model:
    """Return the encoder of a model with narrower tables and a projection up to its width.

    The tables are the truncated singular value decomposition of the sum of all tables. The norm
    after the sum divides by the length of its input, which is the same at either width, and
    subtracts the mean. Therefore the mean of the wide vectors is subtracted first, and the narrow
    vectors are rotated to have mean 0, which costs one dimension. The outputs do not change if the
    subspace contains all of the tables.

    Raises UserError for embeddings that are not a sum of tables, or not wider than ``width``.
    """
    config, encoder = model.recipe.encoder, model.encoder
    recipe = model.recipe.model_copy(
        update={**ENCODER_ONLY, "encoder": _factorised_config(config, width)}
    )
    embeddings = dict(encoder.embeddings.named_parameters())
    tables = {n: t.double() for n, t in embeddings.items() if t.shape[1:] == (config.width,)}
    rows = torch.cat(list(tables.values()))
    if config.embeddings.norm:
        rows -= rows.mean(1, keepdim=True)
        axes = principal_axes(rows, width - 1) @ _zero_mean_basis(width).to(rows)
    else:
        axes = principal_axes(rows, width)
    parts = (rows @ axes).split([len(table) for table in tables.values()])
    others = {n: t for n, t in embeddings.items() if t.ndim == 2 and n not in tables}
    parameters: dict[str, Tensor] = {**others, **dict(zip(tables, parts, strict=True))}
    norm = encoder.embeddings.sum.norm
    gain, bias = torch.ones(config.width).to(rows), torch.zeros(config.width).to(rows)
    if isinstance(norm, LayerNorm):
        gain = gain if norm.weight is None else norm.weight.double()
        bias = bias if norm.bias is None else norm.bias.double()
        gain = gain * (config.width / width) ** 0.5
        parameters |= {
            f"sum.norm.{name}": torch.ones(width) if name == "weight" else torch.zeros(width)
            for name, _ in norm.named_parameters()
        }
    parameters |= {"up_projection.weight": gain[:, None] * axes, "up_projection.bias": bias}
    tensors = {**dict(encoder.named_parameters()), **dict(encoder.named_buffers())}
    weights = {f"encoder.{name}": tensor for name, tensor in tensors.items()}
    weights = {n: t for n, t in weights.items() if not n.startswith("encoder.embeddings.")}
    weights |= {f"encoder.embeddings.{name}": tensor.float() for name, tensor in parameters.items()}
    return model_from_tensors(recipe, model.vocab_size, weights, recipe.name)


def _factorised_config(config: EncoderConfig, width: int) -> EncoderConfig:
    embeddings = config.embeddings
    is_sum = (
        isinstance(config.positions, LearnedPositionsConfig) or not config.positions.is_additive
    )
    is_plain = (
        isinstance(embeddings, TokenEmbeddingsConfig)
        and not embeddings.scaled
        and not embeddings.query_vector
        and config.num_directions == 1
    )
    has_layer_norm = isinstance(config.norm, LayerNormConfig) or not embeddings.norm
    if not (is_plain and is_sum and has_layer_norm) or config.embeddings_width != config.width:
        raise UserError(
            "only embeddings that are a sum of learned tables, followed by a layernorm or nothing, "
            "can be factorised: leave embedding_reduction out"
        )
    if not 2 <= width < config.width:
        raise UserError(
            f"embeddings of width {width} are not narrower than {config.width}: choose another "
            f"embedding_reduction"
        )
    stated = {
        n: v
        for n, v in dict(embeddings).items()
        if n in FactorisedEmbeddingsConfig.model_fields and n != "kind"
    }
    try:
        return config.copy_with(
            "encoder", embeddings=FactorisedEmbeddingsConfig(**stated, width=width)
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def _zero_mean_basis(width: int) -> Tensor:
    """Return orthonormal vectors (width - 1, width), each with mean 0."""
    ones = torch.ones(width, 1, dtype=torch.float64)
    first = torch.cat((ones, torch.eye(width, dtype=torch.float64)[:, 1:]), 1)
    return torch.linalg.qr(first).Q[:, 1:].T


def has_embedding_table(model: TextModel) -> bool:
    """Return True if the model has a single embedding table."""
    return isinstance(model.model.encoder.embeddings.tokens, nn.Embedding)


@torch.no_grad()
def project_embeddings(model: TextModel, tokenizer: Tokenizer, width: int) -> Tensor:
    """Return the token vectors (V, width) float32, projected to their first principal axes.

    If the model's vectors are narrower, zeros are appended (Eckart and Young 1936). The vector of a
    token that the model does not have is the mean over the tokens into which the model splits it.
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
    """Return the first right singular vectors, (D, num_axes) or fewer, of vectors (N, D).

    The entry of the largest absolute value in each is positive.
    """
    # Eigenvectors of the Gram matrix, since the left singular vectors are not needed.
    _, axes = torch.linalg.eigh(vectors.T @ vectors)
    axes = axes.flip(1)[:, :num_axes]
    return axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()


def _token_ids_in(tokenizer: Tokenizer, token_id: int, other_tokenizer: Tokenizer) -> list[int]:
    """Return the ids of another tokenizer's tokens for a token that follows a word."""
    for role in ("pad", "unknown", "start", "end", "mask"):
        if token_id == getattr(tokenizer.special_tokens, role):
            return [getattr(other_tokenizer.special_tokens, role)]
    text = tokenizer.decode([token_id]).strip() or tokenizer.id_to_token(token_id)
    ids, first = other_tokenizer.encode_pretokenized(["a", text])
    return ids[first[1] :]
