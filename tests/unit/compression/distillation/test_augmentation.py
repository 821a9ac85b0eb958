"""Augmented texts: independent of their neighbours, of suitable words, and never the original."""

import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.distillation.augmentation import (
    Augmentation,
    AugmentationInputs,
    augment_examples,
)
from bertwright.compression.distillation.augmentation.masked_lm import _split_words
from bertwright.compression.distillation.augmentation.words import SimilarWords
from bertwright.core.errors import UserError
from bertwright.data.tokenization.words import split_words, word_spans
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from small_tasks import TEXTS, pairs, tagged

MASK = "[MASK]"
KINDS = [
    {"kind": "masked", "num_copies": 5, "num_candidates": 4},
    {"kind": "words", "num_copies": 5, "mask_probability": 0.2, "replace_probability": 0.3},
]
TEXT = st.text(st.characters(categories=("L", "Nd", "P", "Zs")), max_size=40)


def copies(
    settings: dict[str, object],
    texts: Sequence[str],
    augmenter: TextModel | None = None,
    seed: int = 0,
) -> list[list[str | None]]:
    inputs = AugmentationInputs(TEXTS, MASK, augmenter, seed)
    return Augmentation.parse(settings).build(inputs)(texts)


@pytest.mark.parametrize("settings", KINDS)
def test_copies_depend_on_the_seed_and_the_text_only(pretrained, settings) -> None:
    augmenter = pretrained()
    forward = copies(settings, TEXTS, augmenter)
    backward = copies(settings, TEXTS[::-1], augmenter)
    assert forward == backward[::-1]
    assert forward[3:4] == copies(settings, TEXTS[3:4], augmenter)
    assert forward != copies(settings, TEXTS, augmenter, seed=1)
    assert {len(text_copies) for text_copies in forward} == {5}


@pytest.mark.parametrize("settings", KINDS)
def test_copies_of_examples_are_new_and_unlabelled(pretrained, settings) -> None:
    inputs = AugmentationInputs(TEXTS, MASK, pretrained(), 0)
    augment = Augmentation.parse(settings).build(inputs)
    examples = pairs()[:8]
    patterns: set[tuple[bool, bool]] = set()
    for example, augmented in zip(examples, augment_examples(examples, augment), strict=True):
        texts = {(copy.text, copy.pair) for copy in augmented}
        assert len(texts) == len(augmented)
        assert (example.text, example.pair) not in texts
        assert {copy.label for copy in augmented} <= {None}
        patterns |= {(copy.text != example.text, copy.pair != example.pair) for copy in augmented}
    assert patterns == {(True, False), (False, True), (True, True)}
    single = [Example(example.text) for example in examples]
    pairs_of_copies = {copy.pair for group in augment_examples(single, augment) for copy in group}
    assert pairs_of_copies == {None}
    with pytest.raises(UserError, match="leave it out for this task"):
        list(augment_examples(tagged(), augment))


def test_copies_without_a_word_are_dropped() -> None:
    """Copies change the first text, the second, both, and again."""
    augmented = {
        "a": ["a1", None, "a3", None, "a5", "a", "a1"],
        "b": ["b1", "b2", None, "b4", "b5", "b6", "b7"],
    }
    (pairs_of_copies, single) = augment_examples(
        [Example("a", "b", "old"), Example("a", label="new")],
        lambda texts: [augmented[t] for t in texts],
    )
    assert [(copy.text, copy.pair) for copy in pairs_of_copies] == [
        ("a1", "b"), ("a", "b2"), ("a", "b5"), ("a", "b6"),
    ]  # fmt: skip
    assert [(copy.text, copy.pair) for copy in single] == [
        ("a1", None), ("a3", None), ("a5", None),
    ]  # fmt: skip
    assert list(augment_examples([], lambda texts: [])) == []


def test_words_are_replaced_with_their_probability(pretrained) -> None:
    augmenter, text = pretrained(), "The red bird, is old"
    settings = {"kind": "masked", "num_copies": 100, "num_candidates": 1}
    (never,) = copies({**settings, "replace_probability": 0}, [text], augmenter)
    assert set(never) == {text}
    (always,) = copies({**settings, "replace_probability": 1}, [text], augmenter)
    assert len(set(always)) == 1
    assert not set(split_words(always[0] or "")) & {"red", "bird", "is", "old"}
    assert split_words(always[0] or "")[3] == ","
    (half,) = copies({**settings, "replace_probability": 0.5}, [text], augmenter)
    kept = sum(word in split_words(copy or "") for copy in half for word in ("red", "bird", "old"))
    assert kept / 300 == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_words_are_located_among_the_tokens(pretrained, system: str) -> None:
    tokenizer = pretrained(system).tokenizer
    text = "red,bird (old) unbelievably: redbird-house."
    token_ids, spans = tokenizer.encode_with_offsets(text)
    words = list(_split_words(text, token_ids, spans, None))
    texts = [text[word.start : word.stop] for word in words]
    assert texts == ["red", "bird", "old", "unbelievably", "redbird", "house"]
    for word, name in zip(words, texts, strict=True):
        stop = word.token_index + len(word.token_ids)
        assert word.token_ids == token_ids[word.token_index : stop]
        assert tokenizer.decode(word.token_ids).strip() == name
        # A word is read if all its tokens are.
        for limit, is_read in ((stop, True), (stop - 1, False)):
            short = list(_split_words(text, token_ids, spans, limit))
            assert (word in short) == is_read
    assert max(len(word.token_ids) for word in words) > 1


def test_words_without_tokens_are_not_replaced() -> None:
    """A tokenizer may leave out letters that it does not know."""
    words = list(_split_words("red zz old zz", [7, 8], [(0, 3), (7, 10)], None))
    assert [(word.start, word.token_ids) for word in words] == [(0, [7]), (7, [8])]


def test_words_beyond_the_maximum_length_stay(pretrained) -> None:
    """The opening and the closing token leave room for six of eight tokens."""
    size = "encoder.positions.size=8", "phases=[{length: 8, fraction: 1}]"
    settings = {"kind": "masked", "num_copies": 1, "replace_probability": 1.0}
    words = ["the", "red", "bird", "is", "old", "and", "small", "new"]
    augmenter = pretrained("bert", *size)
    assert len(augmenter.tokenizer.encode(" ".join(words[:6]))) == 6
    ((copy,),) = copies(settings, [" ".join(words)], augmenter)
    is_kept = [old == new for old, new in zip(words, (copy or "").split(), strict=True)]
    assert is_kept == [False] * 6 + [True] * 2


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_replaced_words_are_the_most_likely_predictions(pretrained, system: str) -> None:
    augmenter = pretrained(system)
    tokenizer = augmenter.tokenizer
    settings = {"kind": "masked", "num_copies": 40, "num_candidates": 3, "replace_probability": 1.0}
    text = "The red bird is old and small"
    words = split_words(text)
    augmented = [split_words(c) for c in copies(settings, [text], augmenter)[0] if c is not None]
    num_split = 0
    for index, word in enumerate(words):
        masked = " ".join(MASK if n == index else w for n, w in enumerate(words))
        (predictions,) = augmenter.fill_mask(masked, top_k=tokenizer.vocab_size)
        spaced = word if system == "bert" or not index else f" {word}"
        if len(token_ids := tokenizer.encode(spaced)) > 1:
            num_split += 1
            continue
        original = tokenizer.id_to_token(token_ids[0])
        likely = [p.token for p in predictions if p.token != original]
        whole = [w for token in likely if (w := whole_word(augmenter, token)) is not None]
        assert {copy[index] for copy in augmented} <= set(whole[:3]), word
    assert num_split < len(words)
    assert len({tuple(copy) for copy in augmented}) > 20


def whole_word(model: TextModel, token: str) -> str | None:
    """Return the text of a token that is a word by itself."""
    text = token.removeprefix("Ġ")
    if model.tokenizer.kind == "byte-bpe" and not token.startswith("Ġ"):
        return None
    return text if re.fullmatch(r"[A-Za-z0-9]+", text) else None


def test_words_of_several_tokens_are_replaced_by_near_embeddings(pretrained) -> None:
    augmenter = pretrained()
    tokenizer = augmenter.tokenizer
    table = augmenter.model.embedding_table.detach().cpu().numpy()
    text = "redbird redbird"
    token_ids = tokenizer.encode("redbird")
    assert len(token_ids) > 1
    similarity = table @ table[token_ids].mean(0) / np.linalg.norm(table, axis=1)
    nearest = [tokenizer.id_to_token(int(n)) for n in np.argsort(-similarity)]
    whole = [w for token in nearest if (w := whole_word(augmenter, token)) is not None]
    settings = {"kind": "masked", "num_copies": 30, "num_candidates": 2, "replace_probability": 1.0}
    augmented = copies(settings, [text], augmenter)[0]
    assert {word for copy in augmented for word in split_words(copy or "")} == set(whole[:2])


@given(TEXT, st.integers(1, 5))
def test_an_ngram_is_a_part_of_its_text(text: str, max_ngram: int) -> None:
    settings = {
        "kind": "words",
        "mask_probability": 0,
        "replace_probability": 0,
        "ngram_probability": 1,
        "max_ngram": max_ngram,
    }
    for copy in copies(settings, [text])[0]:
        if copy is None:
            # The n-gram contains no word of letters or digits.
            assert not split_words(text) or not all(word[0].isalnum() for word in split_words(text))
            continue
        assert copy in text
        assert 1 <= len(split_words(copy)) <= max_ngram
        assert any(word[0].isalnum() for word in split_words(copy))


def test_ngrams_have_every_length_and_start_anywhere() -> None:
    """The spaces before the first word and after the last one stay."""
    settings = {"kind": "words", "mask_probability": 0, "replace_probability": 0}
    settings |= {"ngram_probability": 0.9, "max_ngram": 3, "num_copies": 400}
    whole = "  red blue   green old\tnew "
    (augmented,) = copies(settings, [whole])
    ngrams = [
        ["  red", "blue", "green", "old", "new "],
        ["  red blue", "blue   green", "green old", "old\tnew "],
        ["  red blue   green", "blue   green old", "green old\tnew "],
    ]
    assert set(augmented) == {whole, *chain(*ngrams)}
    for of_size in ngrams:
        assert sum(copy in of_size for copy in augmented) / 400 == pytest.approx(0.3, abs=0.08)


def test_words_are_masked_and_replaced_with_their_probabilities() -> None:
    settings = {
        "kind": "words",
        "num_copies": 60,
        "mask_probability": 0.2,
        "replace_probability": 0.3,
        "ngram_probability": 0,
    }
    counts: Counter[str] = Counter()
    for text, text_copies in zip(TEXTS, copies(settings, TEXTS), strict=True):
        for copy in text_copies:
            for old, new in zip(text.split(), (copy or "").split(), strict=False):
                counts["masked" if new == MASK else "same" if new == old else "other"] += 1
    fractions = {name: count / counts.total() for name, count in counts.items()}
    assert fractions["masked"] == pytest.approx(0.2, abs=0.01)
    assert fractions["other"] == pytest.approx(0.3, abs=0.01)
    all_masked = {"kind": "words", "mask_probability": 1, "replace_probability": 0}
    # A word may end with a combining mark.
    for text in (TEXTS[0], "a cafe\u0301!"):
        assert copies(all_masked, [text]) == [[None] * 20]
    with pytest.raises(ValueError, match="add up to at most 1"):
        Augmentation.parse({"kind": "words", "mask_probability": 0.6, "replace_probability": 0.6})


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_masks_are_tokenized_as_masks(pretrained, system: str) -> None:
    tokenizer = pretrained(system).tokenizer
    mask_id = tokenizer.special_tokens.mask
    mask = tokenizer.id_to_token(mask_id)
    settings = {"kind": "words", "mask_probability": 0.5, "replace_probability": 0}
    augment = Augmentation.parse(settings).build(AugmentationInputs(TEXTS, mask, None, 0))
    for copy in augment(TEXTS[:1])[0]:
        token_ids = tokenizer.encode(copy or "")
        assert token_ids.count(mask_id) == (copy or "").count(mask)


def test_substitutes_have_the_same_neighbours_or_frequency() -> None:
    similar = SimilarWords([*TEXTS, "zebra"])
    frames = {
        (before, behind, word)
        for text in TEXTS
        for before, word, behind in zip(
            ["", *text.split()], text.split(), [*text.split()[1:], ""], strict=False
        )
    }
    text = TEXTS[0]
    words = text.split()
    keys = similar.context_keys(text, word_spans(text))
    for index, (word, key) in enumerate(zip(words, keys, strict=True)):
        substitutes = {similar.substitute(word, key, number / 50) for number in range(50)}
        before, behind = ["", *words][index], [*words, ""][index + 1]
        candidates = {w for a, b, w in frames if (a, b) == (before, behind)} - {word}
        if candidates:
            assert substitutes == candidates, word
        else:
            assert word not in substitutes or substitutes == {word}, word
    # No other word is as rare or has these neighbours, so it stays.
    assert similar.substitute("zebra", -1, 0.5) == "zebra"
    assert similar.substitute("unknown", -1, 0.5) == "unknown"


def test_substitutes_are_drawn_by_their_frequency() -> None:
    """Counts of 1, of 2 and 3, and of 4 to 7 are alike."""
    texts = [f"the {word} is" for word in ("red", "red", "red", "blue", "old")]
    similar = SimilarWords(texts)
    _, key, _ = similar.context_keys(texts[0], word_spans(texts[0]))
    drawn = Counter(similar.substitute("blue", key, n / 8) for n in range(8))
    assert drawn == {"red": 6, "old": 2}
    marked = SimilarWords(["the cafe\u0301 is", "the ! is"])
    _, key, _ = marked.context_keys("the red is", word_spans("the red is"))
    assert {marked.substitute("red", key, n / 8) for n in range(8)} == {"cafe\u0301"}
    # No text has these neighbours.
    counted = {"one": 1, "uno": 1, "two": 2, "three": 3, "four": 4, "seven": 7, "eight": 8}
    similar = SimilarWords([word for word, count in counted.items() for _ in range(count)])
    for word, others in {
        "one": {"uno"},
        "two": {"three"},
        "three": {"two"},
        "four": {"seven"},
        "seven": {"four"},
        "eight": {"eight"},
    }.items():
        assert {similar.substitute(word, -1, n / 8) for n in range(8)} == others


def test_a_tagger_selects_substitutes(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipeline(text: str):
        tokens = [
            SimpleNamespace(idx=m.start(), pos_="X" if len(m[0]) > 3 else "Y")
            for m in re.finditer(r"\S+", text)
        ]
        return type("Doc", (list,), {"has_annotation": lambda self, name: name == "POS"})(tokens)

    monkeypatch.setitem(
        sys.modules, "spacy", SimpleNamespace(load=lambda name: pipeline_of(pipeline))
    )
    settings = {
        "kind": "words",
        "replace_probability": 0.8,
        "mask_probability": 0,
        "ngram_probability": 0,
        "tagger": "tiny",
    }
    num_replaced = 0
    for text, text_copies in zip(TEXTS, copies(settings, TEXTS), strict=True):
        for copy in filter(None, text_copies):
            for old, new in zip(text.split(), copy.split(), strict=True):
                assert (len(old) > 3) == (len(new) > 3)
                num_replaced += old != new
    assert num_replaced > 100


def pipeline_of(read):
    """Return a stand-in for a spaCy pipeline, with its length limit."""
    return type("Pipeline", (), {"__call__": lambda self, text: read(text), "max_length": 0})()


def test_masked_augmentation_needs_a_masked_language_model(pretrained) -> None:
    for augmenter in (None, pretrained("gpt-2")):
        with pytest.raises(UserError, match="with --augmenter"):
            copies({"kind": "masked"}, TEXTS, augmenter)
