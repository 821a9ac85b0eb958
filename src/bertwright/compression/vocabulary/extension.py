"""Extend a model's vocabulary by the tokens that shorten some texts most."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.compression.vocabulary.initial_rows import (
    INITIALISERS,
    NewRows,
    require_initialiser,
)
from bertwright.compression.vocabulary.resizing import (
    builder,
    network,
    parameters_per_token,
    with_tokenizer,
)
from bertwright.data.tokenization.character_ids import token_character_ids
from bertwright.data.tokenization.extension.extend import Extension, extend_tokenizer
from bertwright.data.tokenization.extension.word_counts import WordCounts, count_words
from bertwright.models.text_model import TextModel
from bertwright.modules.embeddings.spelling import SpelledEmbedding
from bertwright.modules.initialisation import initialise


@dataclass(frozen=True)
class ExtendedModel:
    """A model with new tokens, its tokenizer's extension, and the words of the text."""

    model: TextModel
    extension: Extension
    words: WordCounts


def extend_vocabulary(
    model: TextModel, texts: Iterable[str], num_tokens: int, init: str = "mean", seed: int = 0
) -> ExtendedModel:
    """Return a model with at most ``num_tokens`` more tokens, those that shorten texts most.

    ``init`` is how the rows of new tokens are made: one of INITIALISERS. Rows of other tokens do
    not change. New tokens use rows without a token first, if the tables have such rows.

    Raises UserError for texts and models that cannot be extended.
    """
    require_initialiser(init)
    parameters_per_token(model)  # raises before the text is read
    words = count_words(model.tokenizer, texts)
    extension = extend_tokenizer(model.tokenizer, words, num_tokens)
    tokenizer, new = extension.tokenizer, _new_rows(model, extension, seed)
    num_rows = max(network(model).vocab_size, tokenizer.vocab_size)

    def make_rows(name: str, table: Tensor) -> Tensor:
        rows = table.new_zeros(num_rows, *table.shape[1:])
        rows[: len(table)] = table
        if table.is_floating_point():
            rows[new.first_id : new.first_id + len(new.parts)] = INITIALISERS[init](
                new, name, table
            )
        return rows

    extended = with_tokenizer(model, tokenizer, num_rows, make_rows)
    _spell_new_tokens(extended, extension)
    return ExtendedModel(extended, extension, words)


def _new_rows(model: TextModel, extension: Extension, seed: int) -> NewRows:
    original, tokenizer, build = network(model), model.tokenizer, builder(model)
    prefix: str = tokenizer.settings["model"].get("continuing_subword_prefix") or ""
    num_rows = max(original.vocab_size, extension.tokenizer.vocab_size)

    def build_untrained() -> torch.nn.Module:
        untrained = build(original.recipe, num_rows)
        initialise(untrained, original.recipe.encoder.initialisation, seed)
        return untrained

    return NewRows(
        extension.parts,
        [
            [len(tokenizer.id_to_token(part).removeprefix(prefix)) for part in parts]
            for parts in extension.parts
        ],
        torch.from_numpy(tokenizer.ids),
        build_untrained,
        extension.token_ids.start,
        seed,
    )


@torch.no_grad()
def _spell_new_tokens(model: TextModel, extension: Extension) -> None:
    """Set the characters of new tokens, in embeddings that read them."""
    embedding = network(model).encoder.embeddings.tokens
    if isinstance(embedding, SpelledEmbedding):
        spelling = embedding.get_buffer("spelling")
        token_ids = list(extension.token_ids)
        characters = token_character_ids(extension.tokenizer, len(spelling), embedding.longest)
        spelling[token_ids] = torch.from_numpy(characters[token_ids]).to(spelling)
