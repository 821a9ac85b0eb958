"""New tokens belong to the tokenizer's model, shorten the text, and leave other texts alone."""

from collections import Counter
from functools import cache

import pytest
import tokenizers as library
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from bertwright.core.errors import UserError
from bertwright.data.tokenization.extension.extend import Extension, extend_tokenizer
from bertwright.data.tokenization.extension.word_counts import count_words, split_model_words
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    Tokenizer,
    TokenizerConfig,
    UnigramConfig,
    WordLevelConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from small_text import STORIES, stories

CONFIGS: dict[str, TokenizerConfig] = {
    "wordpiece": WordPieceConfig(vocab_size=230, sentinels=2),
    "byte-bpe": ByteBpeConfig(vocab_size=420, sentinels=2),
    "unigram": UnigramConfig(vocab_size=230, sentinels=2),
}
KINDS = [*CONFIGS, "word-bpe"]
NEWS = [
    "The coronavirus vaccine reached the coronaviruses of 2020. Virus, vaccines!",
    "Åland's café “Coronavirus” vaccinated 1,204 keepers, who vaccinate the others.",
    "A subvirus is no coronavirus, and revaccinating is vaccinating again.",
] * 3
WORDS = [*" ".join((*STORIES, *NEWS)).split(), "vir", "us", "co", "ona", "ccin", "x1", "\u263a"]
parametrize_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def trained(kind: str) -> Tokenizer:
    return _word_bpe() if kind == "word-bpe" else train_tokenizer(stories(10), CONFIGS[kind])


def _word_bpe() -> Tokenizer:
    """Return a BPE of characters that marks the end of a word, as GPT's."""
    backend = library.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=230,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    backend.train_from_iterator(stories(10), trainer)
    return Tokenizer(backend)


@cache
def extended(kind: str, num_tokens: int = 12) -> Extension:
    tokenizer = trained(kind)
    return extend_tokenizer(tokenizer, count_words(tokenizer, NEWS), num_tokens)


def new_strings(extension: Extension) -> list[str]:
    """Return the characters that the new tokens stand for."""
    tokens = [extension.tokenizer.id_to_token(n) for n in extension.token_ids]
    prefix = extension.tokenizer.settings["model"].get("continuing_subword_prefix") or "\0"
    return [token.removeprefix(prefix).removesuffix("</w>") for token in tokens]


def num_tokens(tokenizer: Tokenizer, texts: list[str]) -> int:
    return sum(map(len, tokenizer.encode_batch(texts)))


@parametrize_kind
def test_the_text_is_shorter_by_what_is_reported(kind: str) -> None:
    extension = extended(kind)
    assert len(extension.parts) == 12
    assert extension.num_tokens_before == num_tokens(trained(kind), NEWS)
    assert extension.num_tokens == num_tokens(extension.tokenizer, NEWS)
    assert extension.num_tokens < 0.8 * extension.num_tokens_before


@parametrize_kind
def test_old_tokens_keep_their_ids_and_no_token_is_an_added_one(kind: str) -> None:
    original, tokenizer = trained(kind), extended(kind).tokenizer
    old = range(original.vocab_size)
    assert [tokenizer.id_to_token(n) for n in old] == [original.id_to_token(n) for n in old]
    assert tokenizer.special_tokens == original.special_tokens
    assert tokenizer.settings["added_tokens"] == original.settings["added_tokens"]
    assert list(extended(kind).token_ids) == list(range(len(old), len(old) + 12))
    assert set(tokenizer.ids.tolist()) == {*old, *extended(kind).token_ids}


@parametrize_kind
@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=5), noise=st.text(max_size=5))
def test_other_texts_have_the_same_tokens(kind: str, words: list[str], noise: str) -> None:
    original, extension = trained(kind), extended(kind)
    text = " ".join((*words, noise))
    tokens = [*split_model_words(original, text)]
    if not any(string in word for word in tokens for string in new_strings(extension)):
        assert extension.tokenizer.encode(text) == original.encode(text)
    decoded = [t.decode(t.encode(text)) for t in (original, extension.tokenizer)]
    if original.special_tokens.unknown not in original.encode(text):
        assert decoded[0] == decoded[1]


@parametrize_kind
def test_former_tokens_are_those_of_the_original(kind: str) -> None:
    """The ids of a text, with every new token replaced by its parts, are the original's."""
    original, extension = trained(kind), extended(kind)
    parts = dict(zip(extension.token_ids, extension.parts, strict=True))
    for word in ("coronavirus", "vaccine", "vaccinated"):
        ids = extension.tokenizer.encode(word)
        assert len(ids) < len(original.encode(word))
        assert [old for n in ids for old in parts.get(n, (n,))] == original.encode(word)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_every_new_token_is_used(kind: str) -> None:
    used = {n for ids in extended(kind).tokenizer.encode_batch(NEWS) for n in ids}
    assert used >= set(extended(kind).token_ids)


def test_the_best_wordpiece_token_is_selected() -> None:
    """Compared with all strings in the text, each added alone."""
    original = trained("wordpiece")
    extension = extended("wordpiece", 1)
    words = Counter(word for text in NEWS for word in split_model_words(original, text))
    candidates = {
        ("##" if begin else "") + word[begin:end]
        for word in words
        for begin in range(len(word))
        for end in range(begin + 2, len(word) + 1)
    }
    vocabulary = original.backend.get_vocab(with_added_tokens=False)
    sizes = [
        sum(count * len(model.tokenize(word)) for word, count in words.items())
        for candidate in candidates - vocabulary.keys()
        for model in [models.WordPiece({**vocabulary, candidate: 9_999}, unk_token="[UNK]")]
    ]
    assert extension.num_tokens == min(sizes)


def test_bpe_goes_on_as_if_it_had_never_stopped() -> None:
    """The merges are those that a longer training on the same text makes."""
    texts = NEWS * 2
    short, long = (train_tokenizer(texts, ByteBpeConfig(vocab_size=n)) for n in (300, 340))
    extension = extend_tokenizer(short, count_words(short, texts), 40)
    merges = [t.settings["model"]["merges"] for t in (extension.tokenizer, long)]
    assert merges[0] == merges[1]
    assert merges[0][: len(short.settings["model"]["merges"])] == short.settings["model"]["merges"]


def test_scores_of_a_unigram_model_stay() -> None:
    old, new = (
        t.settings["model"]["vocab"] for t in (trained("unigram"), extended("unigram").tokenizer)
    )
    assert new[: len(old)] == old
    assert min(score for _, score in new) == min(score for _, score in old)


def test_fewer_tokens_are_added_if_no_more_help() -> None:
    tokenizer = trained("wordpiece")
    words = count_words(tokenizer, ["ratio ratio"])
    extension = extend_tokenizer(tokenizer, words, 500)
    assert extension.num_tokens == 2
    assert new_strings(extension) == ["ratio"]


def test_a_saved_tokenizer_is_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        extended(kind).tokenizer.save(folder)
        text = " ".join(NEWS)
        stored = library.Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert stored.encode(text, add_special_tokens=False).ids == extended(kind).tokenizer.encode(
            text
        )
        assert Tokenizer.load(folder).hash == extended(kind).tokenizer.hash


def test_what_cannot_be_extended_is_refused() -> None:
    tokenizer = trained("wordpiece")
    words = count_words(tokenizer, NEWS)
    with pytest.raises(UserError, match="must be 1 or more, not 0"):
        extend_tokenizer(tokenizer, words, 0)
    with pytest.raises(UserError, match="contains no words"):
        count_words(tokenizer, ["", " \n"])
    with pytest.raises(UserError, match="no new token shortens this text"):
        extend_tokenizer(tokenizer, count_words(tokenizer, ["Αθήνα Αθήνα Αθήνα"]), 5)
    whole_words = train_tokenizer(stories(10), WordLevelConfig(vocab_size=100))
    with pytest.raises(UserError, match="of the kind words does not divide words"):
        extend_tokenizer(whole_words, count_words(whole_words, NEWS), 5)
