"""A pruned tokenizer encodes text with its tokens as before."""

import json
from itertools import pairwise

import pytest
import tokenizers as library

from bertwright.data.tokenization.pruning import prune_tokenizer
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    Tokenizer,
    TokenizerConfig,
    UnigramConfig,
    WordLevelConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from toy_stories import stories

TEXTS = stories(20)
NEEDED = "The old river remembers slowly. The old teacher sings."
KINDS = [
    WordPieceConfig(vocab_size=200),
    ByteBpeConfig(vocab_size=400),
    UnigramConfig(vocab_size=200, sentinels=3),
    WordLevelConfig(vocab_size=100),
]
parametrize_config = pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)


def train(config: TokenizerConfig) -> Tokenizer:
    return train_tokenizer(TEXTS, config)


@parametrize_config
def test_kept_tokens_are_encoded_as_before(config: TokenizerConfig) -> None:
    original = train(config)
    pruned, old_ids = prune_tokenizer(original, set(original.encode(NEEDED)))
    assert pruned.vocab_size == len(old_ids) < original.vocab_size
    assert [pruned.id_to_token(new) for new in range(pruned.vocab_size)] == [
        original.id_to_token(old) for old in old_ids
    ]
    # Also words of these tokens that occur in no text.
    words = [
        original.decode([old]).strip() for old in old_ids if old not in original.special_tokens.all
    ]
    texts = [NEEDED, NEEDED.upper(), *words, *map("".join, pairwise(words)), " ".join(words)]
    covered = 0
    for text in texts:
        ids = original.encode(text)
        if set(ids) <= {*old_ids}:
            covered += 1
            assert [old_ids[token] for token in pruned.encode(text)] == ids
    assert covered > len(words)


@parametrize_config
def test_no_text_becomes_unknown(config: TokenizerConfig) -> None:
    original = train(config)
    pruned, _ = prune_tokenizer(original, set(original.encode(NEEDED)))
    if config.kind != "words":
        for text in TEXTS:
            assert pruned.decode(pruned.encode(text)) == original.decode(original.encode(text))
    kept = [token.content for token in pruned.backend.get_added_tokens_decoder().values()]
    assert kept == [token.content for token in original.backend.get_added_tokens_decoder().values()]


def test_unneeded_merges_are_removed() -> None:
    original = train(ByteBpeConfig(vocab_size=400))
    pruned, _ = prune_tokenizer(original, set(original.encode(NEEDED)))
    merges, vocabulary = (pruned.settings["model"][name] for name in ("merges", "vocab"))
    assert 0 < len(merges) < len(original.settings["model"]["merges"])
    assert all({a, b, a + b} <= vocabulary.keys() for a, b in merges)


def test_score_of_unknown_characters_is_kept() -> None:
    """The score is relative to the least probable token, which no text needs."""
    original = train(UnigramConfig(vocab_size=200))
    pruned, _ = prune_tokenizer(original, set(original.encode(NEEDED)))
    least = (
        min(score for _, score in tokenizer.settings["model"]["vocab"])
        for tokenizer in (original, pruned)
    )
    assert next(least) == next(least)


@parametrize_config
def test_special_tokens_around_a_text_are_kept(config: TokenizerConfig) -> None:
    original = train(config)
    pruned, old_ids = prune_tokenizer(original, set(original.encode(NEEDED)))
    ids = pruned.backend.encode(NEEDED, NEEDED).ids
    assert [old_ids[token] for token in ids] == original.backend.encode(NEEDED, NEEDED).ids


def test_published_templates_are_renumbered() -> None:
    original = train(WordPieceConfig(vocab_size=200))
    settings = json.loads(original.backend.to_str())
    special = {r: [original.id_to_token(n), n] for r, n in (("cls", 2), ("sep", 3))}
    settings["post_processor"] = {
        "type": "Sequence",
        "processors": [{"type": "BertProcessing", **special}],
    }
    # As in published vocabularies that do not begin with special tokens.
    shifted = {token: (n + 7) % 200 for token, n in settings["model"]["vocab"].items()}
    settings["model"]["vocab"] = shifted
    for token in settings["added_tokens"]:
        token["id"] = shifted[token["content"]]
    for pair in special.values():
        pair[1] = shifted[pair[0]]
    other = Tokenizer(library.Tokenizer.from_str(json.dumps(settings)))
    pruned, old_ids = prune_tokenizer(other, set(other.encode(NEEDED)))
    ids = pruned.backend.encode(NEEDED).ids
    assert [old_ids[token] for token in ids] == other.backend.encode(NEEDED).ids
