"""Extension of a tokenizer by the tokens that shorten a text most."""

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import tokenizers as library

from bertwright.core.errors import UserError
from bertwright.data.tokenization.extension.bpe import Merge, extend_bpe
from bertwright.data.tokenization.extension.new_token import NewToken
from bertwright.data.tokenization.extension.unigram import (
    MARGIN,
    UnigramSegmenter,
    extend_unigram,
)
from bertwright.data.tokenization.extension.word_counts import WordCounts
from bertwright.data.tokenization.extension.wordpiece import extend_wordpiece
from bertwright.data.tokenization.tokenizer import Tokenizer

TokenizerSettings = dict[str, Any]


@dataclass(frozen=True)
class Extension:
    """An extended tokenizer.

    - ``parts``: the ids of the former tokens of every new token; the ids of the new tokens follow
      those of the original tokenizer
    - ``num_tokens_before``, ``num_tokens``: number of tokens of the text
    """

    tokenizer: Tokenizer
    parts: Sequence[tuple[int, ...]]
    num_tokens_before: int
    num_tokens: int

    @property
    def token_ids(self) -> range:
        """Return the ids of the new tokens."""
        size = self.tokenizer.vocab_size
        return range(size - len(self.parts), size)


def extend_tokenizer(tokenizer: Tokenizer, words: WordCounts, num_tokens: int) -> Extension:
    """Return a tokenizer with at most ``num_tokens`` more tokens, those that shorten a text most.

    The new tokens are part of the tokenizer's model, as if it had been trained with them. The ids
    of other tokens do not change, nor do the tokens of any text without a new token's characters.
    There are fewer new tokens if no more help.

    Errors: UserError if ``num_tokens`` is not positive, if the tokenizer's model does not divide
    words, or if no token helps.
    """
    if num_tokens < 1:
        raise UserError(f"the number of tokens to add must be 1 or more, not {num_tokens}")
    settings = deepcopy(tokenizer.settings)
    model = settings["model"]
    _add_added_tokens(settings)
    new_tokens, merges = _find_new_tokens(tokenizer, model, words, num_tokens)
    if not new_tokens:
        raise UserError(
            "no new token shortens this text: nothing that its words are divided into occurs "
            "twice, or its characters are unknown to the tokenizer; name other text"
        )
    first_id = tokenizer.vocab_size
    if model["type"] == "Unigram":
        model["vocab"] += [[new.token, new.score] for new in new_tokens]
    else:
        model["vocab"] |= {new.token: first_id + n for n, new in enumerate(new_tokens)}
    if merges:
        model["merges"] += [[*merge] for merge in merges]
    extended = Tokenizer(library.Tokenizer.from_str(json.dumps(settings)), tokenizer.roles)
    vocabulary = tokenizer.backend.get_vocab(with_added_tokens=False)
    parts = [tuple(vocabulary[part] for part in new.parts) for new in new_tokens]
    before, after = (count_tokens_of_words(t, words) for t in (tokenizer, extended))
    return Extension(extended, parts, before, after)


def count_tokens_of_words(tokenizer: Tokenizer, words: WordCounts) -> int:
    """Return the number of tokens of a text."""
    tokenize = tokenizer.backend.model.tokenize
    return sum(count * len(tokenize(word)) for word, count in words.counts.items())


def _find_new_tokens(
    tokenizer: Tokenizer, model: TokenizerSettings, words: WordCounts, num_tokens: int
) -> tuple[list[NewToken], list[Merge]]:
    """Return new tokens for a tokenizer's model, and their merges if it has merges."""
    backend = tokenizer.backend.model

    def tokenize(word: str) -> list[str]:
        return [token.value for token in backend.tokenize(word)]

    match model["type"]:
        case "WordPiece":
            return extend_wordpiece(model, words.counts, num_tokens), []
        case "Unigram":
            return extend_unigram(model, words.counts, num_tokens), []
        case "BPE":
            return extend_bpe(model, words.counts, num_tokens, tokenize)
        case _:
            raise UserError(
                f"a tokenizer of the kind {tokenizer.kind} does not divide words, so no token "
                f"makes its texts shorter: train another with 'bertwright tokenizer train'"
            )


def _add_added_tokens(settings: TokenizerSettings) -> None:
    """Add the added tokens to the model's vocabulary, so that they keep their ids beside new ones.

    In a unigram model, the score of an added token is below that of its characters where possible.
    """
    model = settings["model"]
    added = {token["content"]: token["id"] for token in settings["added_tokens"]}
    if model["type"] != "Unigram":
        model["vocab"] = {**added, **model["vocab"]}
        return
    known = {token for token, _ in model["vocab"]}
    segmenter = UnigramSegmenter(model)
    for token in sorted(added.keys() - known, key=added.__getitem__):
        _, _, score = segmenter.best_path(token)
        model["vocab"].append([token, max(segmenter.min_score, score - MARGIN)])
