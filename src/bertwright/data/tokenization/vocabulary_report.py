"""What a tokenizer's vocabulary holds, and how it divides some texts."""

from collections import Counter
from typing import Any

from bertwright.data.tokenization.extension.word_counts import WordCounts
from bertwright.data.tokenization.tokenizer import SPECIAL_TOKEN_NAMES, Tokenizer

NUM_EXAMPLES = 20
"""Number of fragmented words and of unused tokens that a report lists."""


def describe_vocabulary(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the kind, the size and the special tokens of a tokenizer."""
    specials = {
        role: tokenizer.id_to_token(getattr(tokenizer.special_tokens, role))
        for role in SPECIAL_TOKEN_NAMES
    }
    return {
        "kind": tokenizer.kind,
        "size": tokenizer.vocab_size,
        "ids_without_token": len(tokenizer.unused_ids),
        "lowercase": tokenizer.lowercase,
        "special_tokens": specials,
    }


def describe_segmentation(tokenizer: Tokenizer, words: WordCounts) -> dict[str, Any]:
    """Return how a tokenizer divides texts.

    - ``tokens_per_word``: words are defined on the text, so tokenizers can be compared
    - ``unknown_fraction``: fraction of tokens that are the unknown token
    - ``fragmented_words``: the words with the most tokens in the text beyond one, and their tokens
    - ``unused_tokens``: number of tokens that do not occur, special ones aside
    """
    tokenize = tokenizer.backend.model.tokenize
    token_counts: Counter[int] = Counter()
    fragments: list[tuple[int, str, list[int]]] = []
    for word, count in words.counts.items():
        ids = [token.id for token in tokenize(word)]
        for token_id in ids:
            token_counts[token_id] += count
        fragments.append((count * (len(ids) - 1), word, ids))
    num_tokens = token_counts.total()
    fragments = [item for item in sorted(fragments, key=lambda f: (-f[0], f[1])) if item[0] > 0]
    unused = [
        token_id
        for token_id in tokenizer.ids.tolist()
        if token_id not in token_counts
        and token_id not in tokenizer.reserved_ids | tokenizer.special_tokens.all
    ]
    return {
        "words": words.num_words,
        "tokens": num_tokens,
        "tokens_per_word": num_tokens / max(words.num_words, 1),
        "unknown_fraction": token_counts[tokenizer.special_tokens.unknown] / max(num_tokens, 1),
        "fragmented_words": [
            {
                "word": tokenizer.decode(ids).strip() or word,
                "occurrences": words.counts[word],
                "tokens": " ".join(map(tokenizer.id_to_token, ids)),
            }
            for _, word, ids in fragments[:NUM_EXAMPLES]
        ],
        "unused_tokens": len(unused),
        "unused_examples": " ".join(map(tokenizer.id_to_token, unused[-NUM_EXAMPLES:])),
    }
