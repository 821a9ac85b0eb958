"""Changed texts: the same whatever stands beside them, of words that fit, and never the text as it
was."""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.augmentation import Augmentation, Given, augmented
from bertwright.compression.augmentation.like_words import LikeWords
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from bertwright.text.words import word_spans, words
from small_tasks import TEXTS, pairs, tagged

HIDDEN = "[MASK]"
KINDS = [
    {"kind": "masked", "copies": 5, "candidates": 4},
    {"kind": "words", "copies": 5, "hidden": 0.2, "exchanged": 0.3},
]
WRITTEN = st.text(st.characters(categories=("L", "Nd", "P", "Zs")), max_size=40)


def copies(
    stated: dict[str, object], texts: Sequence[str], namer: TextModel | None = None, seed: int = 0
) -> list[list[str | None]]:
    augmenter = Augmentation.choose(stated).augmenter(Given(TEXTS, HIDDEN, namer, seed))
    return augmenter(texts)


@pytest.mark.parametrize("stated", KINDS)
def test_copies_hang_on_the_seed_and_the_text_alone(pretrained, stated) -> None:
    namer = pretrained()
    together = copies(stated, TEXTS, namer)
    backwards = copies(stated, TEXTS[::-1], namer)
    assert together == backwards[::-1]
    assert together[3:4] == copies(stated, TEXTS[3:4], namer)
    assert together != copies(stated, TEXTS, namer, seed=1)
    assert {len(own) for own in together} == {5}


@pytest.mark.parametrize("stated", KINDS)
def test_examples_get_copies_that_are_new_and_unlabelled(pretrained, stated) -> None:
    augmenter = Augmentation.choose(stated).augmenter(Given(TEXTS, HIDDEN, pretrained(), 0))
    examples = pairs()[:8]
    turns: set[tuple[bool, bool]] = set()
    for example, found in zip(examples, augmented(examples, augmenter), strict=True):
        said = {(copy.first, copy.second) for copy in found}
        assert len(said) == len(found)
        assert (example.first, example.second) not in said
        assert {copy.label for copy in found} <= {None}
        turns |= {(copy.first != example.first, copy.second != example.second) for copy in found}
    assert turns == {(True, False), (False, True), (True, True)}
    alone = [Example(example.first) for example in examples]
    assert {copy.second for own in augmented(alone, augmenter) for copy in own} == {None}
    with pytest.raises(UserError, match="leave it out for this task"):
        list(augmented(tagged(), augmenter))


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_masked_words_are_those_that_the_model_finds_most_likely(pretrained, system: str) -> None:
    namer = pretrained(system)
    stated = {"kind": "masked", "copies": 40, "candidates": 3, "exchanged": 1.0}
    text = "The red bird is old and small"
    found = [words(copy) for copy in copies(stated, [text], namer)[0] if copy is not None]
    several = 0
    for place, word in enumerate(words(text)):
        hiding = " ".join(HIDDEN if n == place else w for n, w in enumerate(words(text)))
        (guesses,) = namer.fill_mask(hiding, top_k=namer.tokenizer.size)
        spaced = word if system == "bert" or not place else f" {word}"
        if len(pieces := namer.tokenizer.encode(spaced)) > 1:
            several += 1
            continue
        own = namer.tokenizer.piece(pieces[0])
        likely = [guess.piece for guess in guesses if guess.piece != own]
        whole = [w for piece in likely if (w := whole_word(namer, piece)) is not None]
        assert {words_[place] for words_ in found} <= set(whole[:3]), word
    assert several < len(words(text))
    assert len({tuple(own) for own in found}) > 20


def whole_word(namer: TextModel, piece: str) -> str | None:
    """What a piece says, where it is a word by itself."""
    written = piece.removeprefix("Ġ")
    if namer.tokenizer.kind == "byte-bpe" and not piece.startswith("Ġ"):
        return None
    return written if re.fullmatch(r"[A-Za-z0-9]+", written) else None


def test_words_of_several_pieces_are_exchanged_for_those_of_near_vectors(pretrained) -> None:
    namer = pretrained()
    tokenizer, table = namer.tokenizer, namer.model.embedding.detach().cpu().numpy()
    text = "redbird redbird"
    pieces = tokenizer.encode("redbird")
    assert len(pieces) > 1
    own = table[pieces].mean(0)
    near = table @ own / np.linalg.norm(table, axis=1)
    order = [tokenizer.piece(int(n)) for n in np.argsort(-near)]
    whole = [w for piece in order if (w := whole_word(namer, piece)) is not None]
    stated = {"kind": "masked", "copies": 30, "candidates": 2, "exchanged": 1.0}
    found = copies(stated, [text], namer)[0]
    assert {word for copy in found for word in words(copy or "")} == set(whole[:2])


@given(WRITTEN, st.integers(1, 5))
def test_a_stretch_is_a_part_of_its_text(text: str, longest: int) -> None:
    stated = {"kind": "words", "hidden": 0, "exchanged": 0, "stretch": 1, "longest": longest}
    for copy in copies(stated, [text])[0]:
        if copy is None:
            # What was drawn, or all of it, is no word.
            assert not words(text) or not all(word[0].isalnum() for word in words(text))
            continue
        assert copy in text
        assert 1 <= len(words(copy)) <= longest
        assert any(word[0].isalnum() for word in words(copy))


def test_words_are_hidden_and_exchanged_as_often_as_is_said() -> None:
    stated = {"kind": "words", "copies": 60, "hidden": 0.2, "exchanged": 0.3, "stretch": 0}
    counts: Counter[str] = Counter()
    for text, own in zip(TEXTS, copies(stated, TEXTS), strict=True):
        for copy in own:
            for old, new in zip(text.split(), (copy or "").split(), strict=False):
                counts["hidden" if new == HIDDEN else "same" if new == old else "other"] += 1
    shares = {name: count / counts.total() for name, count in counts.items()}
    assert shares["hidden"] == pytest.approx(0.2, abs=0.01)
    assert shares["other"] == pytest.approx(0.3, abs=0.01)
    assert copies({"kind": "words", "hidden": 1, "exchanged": 0}, TEXTS[:1]) == [[None] * 20]
    with pytest.raises(ValueError, match="add up to 1"):
        Augmentation.choose({"kind": "words", "hidden": 0.6, "exchanged": 0.6})


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_what_is_hidden_is_read_as_hidden(pretrained, system: str) -> None:
    tokenizer = pretrained(system).tokenizer
    hidden, mask = tokenizer.piece(tokenizer.specials.mask), tokenizer.specials.mask
    augmenter = Augmentation.choose({"kind": "words", "hidden": 0.5, "exchanged": 0}).augmenter(
        Given(TEXTS, hidden, None, 0)
    )
    for copy in augmenter(TEXTS[:1])[0]:
        read = tokenizer.encode(copy or "")
        assert read.count(mask) == (copy or "").count(hidden)


def test_a_word_is_exchanged_for_one_between_the_same_neighbours_or_as_frequent() -> None:
    like = LikeWords([*TEXTS, "zebra"])
    frames = {
        (before, behind, word)
        for text in TEXTS
        for before, word, behind in zip(
            ["", *text.split()], text.split(), [*text.split()[1:], ""], strict=False
        )
    }
    text = TEXTS[0]
    own = text.split()
    keys = like.keys(text, word_spans(text))
    for place, (word, key) in enumerate(zip(own, keys, strict=True)):
        found = {like.other(word, key, number / 50) for number in range(50)}
        before, behind = ["", *own][place], [*own, ""][place + 1]
        there = {w for a, b, w in frames if (a, b) == (before, behind)} - {word}
        if there:
            assert found == there, word
        else:
            assert word not in found or found == {word}, word
    # Nothing else is as rare, and nothing stands so: it stays.
    assert like.other("zebra", -1, 0.5) == "zebra"
    assert like.other("unheard", -1, 0.5) == "unheard"


def test_a_tagger_tells_what_is_of_the_same_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline(text: str):
        found = [
            SimpleNamespace(idx=m.start(), pos_="X" if len(m[0]) > 3 else "Y")
            for m in re.finditer(r"\S+", text)
        ]
        return type("Doc", (list,), {"has_annotation": lambda self, name: name == "POS"})(found)

    monkeypatch.setitem(
        sys.modules, "spacy", SimpleNamespace(load=lambda name: pipeline_of(pipeline))
    )
    stated = {"kind": "words", "exchanged": 1, "hidden": 0, "stretch": 0, "tagger": "tiny"}
    for text, own in zip(TEXTS, copies(stated, TEXTS), strict=True):
        for copy in own:
            # No word is left, but the tagger has none other of the kind of one.
            for old, new in zip(text.split(), (copy or "").split(), strict=False):
                assert (len(old) > 3) == (len(new) > 3)


def pipeline_of(read):
    """With the limit that a spaCy pipeline has."""
    return type("Pipeline", (), {"__call__": lambda self, text: read(text), "max_length": 0})()


def test_what_names_no_words_changes_none(pretrained) -> None:
    for namer in (None, pretrained("gpt-2")):
        with pytest.raises(UserError, match="with --namer"):
            copies({"kind": "masked"}, TEXTS, namer)
