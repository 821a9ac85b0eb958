"""A tokenizer of fewer pieces cuts what needs no others as it was cut, and can still read all."""

import json
from itertools import pairwise

import pytest
import tokenizers as library
from toy_stories import stories

from bertwright.text.tokenizers import (
    ByteBpeChoice,
    Tokenizer,
    TokenizerChoice,
    UnigramChoice,
    WordPieceChoice,
    WordsChoice,
)
from bertwright.text.trimming import trimmed
from bertwright.text.vocabularies import train_tokenizer

TEXTS = stories(20)
NEEDED = "The old river remembers slowly. The old teacher sings."
KINDS = [
    WordPieceChoice(size=200),
    ByteBpeChoice(size=400),
    UnigramChoice(size=200, sentinels=3),
    WordsChoice(size=100),
]
by_kind = pytest.mark.parametrize("choice", KINDS, ids=lambda choice: choice.kind)


def learned(choice: TokenizerChoice) -> Tokenizer:
    return train_tokenizer(TEXTS, choice)


@by_kind
def test_what_needs_no_other_pieces_is_cut_as_it_was(choice: TokenizerChoice) -> None:
    whole = learned(choice)
    small, former = trimmed(whole, set(whole.encode(NEEDED)))
    assert small.size == len(former) < whole.size
    assert [small.piece(new) for new in range(small.size)] == [whole.piece(old) for old in former]
    # Words of these pieces that no text has, too.
    words = [whole.decode([old]).strip() for old in former if old not in whole.specials.all]
    texts = [NEEDED, NEEDED.upper(), *words, *map("".join, pairwise(words)), " ".join(words)]
    covered = 0
    for text in texts:
        cut = whole.encode(text)
        if set(cut) <= {*former}:
            covered += 1
            assert [former[piece] for piece in small.encode(text)] == cut
    assert covered > len(words)


@by_kind
def test_no_text_becomes_unknown_that_can_be_spelled(choice: TokenizerChoice) -> None:
    whole = learned(choice)
    small, _ = trimmed(whole, set(whole.encode(NEEDED)))
    if choice.kind != "words":
        for text in TEXTS:
            assert small.decode(small.encode(text)) == whole.decode(whole.encode(text))
    kept = [each.content for each in small.backend.get_added_tokens_decoder().values()]
    assert kept == [each.content for each in whole.backend.get_added_tokens_decoder().values()]


def test_merges_go_with_what_they_make() -> None:
    whole = learned(ByteBpeChoice(size=400))
    small, _ = trimmed(whole, set(whole.encode(NEEDED)))
    merges, vocabulary = (small.settings["model"][name] for name in ("merges", "vocab"))
    assert 0 < len(merges) < len(whole.settings["model"]["merges"])
    assert all({a, b, a + b} <= vocabulary.keys() for a, b in merges)


def test_unknown_characters_weigh_what_they_did() -> None:
    """Against the least probable of all pieces, which no text needs."""
    whole = learned(UnigramChoice(size=200))
    small, _ = trimmed(whole, set(whole.encode(NEEDED)))
    least = (min(score for _, score in own.settings["model"]["vocab"]) for own in (whole, small))
    assert next(least) == next(least)


@by_kind
def test_what_stands_around_a_text_is_the_same(choice: TokenizerChoice) -> None:
    whole = learned(choice)
    small, former = trimmed(whole, set(whole.encode(NEEDED)))
    ids = small.backend.encode(NEEDED, NEEDED).ids
    assert [former[piece] for piece in ids] == whole.backend.encode(NEEDED, NEEDED).ids


def test_published_templates_are_renumbered() -> None:
    whole = learned(WordPieceChoice(size=200))
    settings = json.loads(whole.backend.to_str())
    named = {r: [whole.piece(n), n] for r, n in (("cls", 2), ("sep", 3))}
    settings["post_processor"] = {
        "type": "Sequence",
        "processors": [{"type": "BertProcessing", **named}],
    }
    # As numbers of published vocabularies, which do not begin with special pieces.
    shifted = {piece: (n + 7) % 200 for piece, n in settings["model"]["vocab"].items()}
    settings["model"]["vocab"] = shifted
    for piece in settings["added_tokens"]:
        piece["id"] = shifted[piece["content"]]
    for pair in named.values():
        pair[1] = shifted[pair[0]]
    other = Tokenizer(library.Tokenizer.from_str(json.dumps(settings)))
    small, former = trimmed(other, set(other.encode(NEEDED)))
    ids = small.backend.encode(NEEDED).ids
    assert [former[piece] for piece in ids] == other.backend.encode(NEEDED).ids
