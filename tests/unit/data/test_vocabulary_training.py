"""Training of vocabularies is deterministic."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data import vocabulary_training as vocabularies
from bertwright.data.tokenization.tokenizer import ItemTokenizerConfig, Tokenizer, TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer, train_tokenizer_on_files
from bertwright.recipes import Recipe
from bertwright.recipes.loading import system_names
from small_text import KINDS, stories

HASHES = """
import sys
import bertwright.core.parallel
bertwright.core.parallel.CHUNK_CHARACTERS = 500
from small_text import KINDS, stories
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
for kind in KINDS:
    config = TokenizerConfig.parse({"kind": kind, "vocab_size": 400})
    print(train_tokenizer(stories(40), config, int(sys.argv[1])).hash)
"""


def make_config(kind: str, size: int = 400) -> TokenizerConfig:
    return TokenizerConfig.parse({"kind": kind, "vocab_size": size})


def test_training_is_deterministic_across_processes() -> None:
    here = [train_tokenizer(stories(40), make_config(kind)).hash for kind in KINDS]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{HASHES}"]
    running = [
        subprocess.Popen([*command, workers], stdout=subprocess.PIPE, text=True)
        for workers in ("1", "2")
    ]
    for process in running:
        assert process.communicate()[0].split() == here


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_does_not_depend_on_the_order(kind: str) -> None:
    texts = stories(40)
    assert (
        train_tokenizer(texts, make_config(kind)).hash
        == train_tokenizer(texts[::-1], make_config(kind)).hash
    )


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_size_is_not_exceeded(kind: str) -> None:
    assert train_tokenizer(stories(60), make_config(kind, 400)).vocab_size <= 400


def test_frequent_words_are_tokens(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode(" lighthouse")) == 1


def test_rare_characters_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabularies, "CHARACTER_COVERAGE", 0.99)
    tokenizer = train_tokenizer(["common words " * 100, "\u16a0"], make_config("wordpiece"))
    assert tokenizer.encode("\u16a0") == [tokenizer.special_tokens.unknown]


def test_counts_of_a_large_text_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_tokenizer(stories(60), make_config("wordpiece"))
    monkeypatch.setattr(vocabularies, "MAX_TRAINING_WORDS", 500)
    monkeypatch.setattr(vocabularies, "MAX_DISTINCT_WORDS", 20)
    scaled = train_tokenizer(stories(60), make_config("wordpiece"))
    assert 100 < scaled.vocab_size < whole.vocab_size
    assert scaled.encode("lighthouse") == [scaled.token_to_id("lighthouse")]


def test_training_on_lines_without_spaces() -> None:
    """In a language without spaces, lines are longer than any word."""
    generator = random.Random(0)
    letters = [chr(0x0E01 + number) for number in range(40)]
    rare = chr(0x0E50)
    texts = ["".join(generator.choices(letters, k=70)) + rare * (n == 0) for n in range(200)]
    tokenizer = train_tokenizer(texts, make_config("unigram", 300))
    assert tokenizer.vocab_size > 200
    assert tokenizer.special_tokens.unknown not in tokenizer.encode(texts[1])


def test_every_script_has_its_characters_though_its_runs_are_rare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bertwright.data.tokenization.unigram.MAX_RUNS", 60)
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefgh", k=4)) for _ in range(100)]
    ideographs = [chr(0x4E00 + 40 * number) for number in range(60)]
    clauses = ["".join(generator.choices(ideographs, k=12)) for _ in range(100)]
    tokenizer = train_tokenizer(
        [*(f"{word} {word}" for word in words), *clauses], make_config("unigram", 300)
    )
    unknown = tokenizer.special_tokens.unknown
    assert all(unknown not in tokenizer.encode(text) for text in (*words, *clauses))


def test_the_characters_of_a_text_leave_room_for_special_tokens() -> None:
    letters = [chr(0x4E00 + number) for number in range(252)]
    texts = [f"{a}{b}" for a in letters for b in random.Random(0).choices(letters, k=3)]
    for vocab_size in (60, 200, 205, 300):
        assert train_tokenizer(texts, make_config("wordpiece", vocab_size)).vocab_size <= vocab_size


@pytest.mark.parametrize("system", system_names())
def test_tokenizers_of_all_recipes_can_be_trained(system: str) -> None:
    make_config = Recipe.load(system).text.tokenizer
    if isinstance(make_config, ItemTokenizerConfig):
        return  # prepare makes it from histories
    text = "".join(map(chr, range(32, 127)))
    assert (
        train_tokenizer([text] * 3, make_config.model_copy(update={"vocab_size": 800})).vocab_size
        <= 800
    )


def test_text_without_words_raises() -> None:
    with pytest.raises(UserError, match="no word"):
        train_tokenizer(["  \n "], make_config("wordpiece"))


def test_byte_bpe_cannot_lower_case() -> None:
    lower = TokenizerConfig.parse({"kind": "byte-bpe", "vocab_size": 400, "lowercase": True})
    with pytest.raises(UserError, match="--lowercase"):
        train_tokenizer(stories(5), lower)


def test_train_tokenizer_on_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(stories(30)))
    (tmp_path / "b.txt").write_text("\n\n".join(stories(10)))  # again the first ten
    settings = {"kind": "wordpiece", "vocab_size": 400}
    one = train_tokenizer_on_files([tmp_path / "a.txt"], tmp_path / "one", settings, num_workers=1)
    both = train_tokenizer_on_files([tmp_path], tmp_path / "both", settings, num_workers=1)
    assert one.hash == both.hash == Tokenizer.load(tmp_path / "one").hash
    with pytest.raises(UserError, match="already exists"):
        train_tokenizer_on_files([tmp_path], tmp_path / "one", settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "wordpeice"}, "did you mean 'wordpiece'"),
        ({"kind": "wordpiece", "vocab_size": 3}, "size"),
        ({"kind": "wordpiece", "vocab_sise": 300}, "vocab_sise"),
    ],
)
def test_invalid_settings_raise_one_sentence(
    settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        train_tokenizer_on_files([tmp_path], tmp_path / "out", settings)


@pytest.mark.parametrize("kind", KINDS)
def test_sentinels_are_the_last_tokens(kind: str) -> None:
    config = make_config(kind).model_copy(update={"sentinels": 7})
    tokenizer = train_tokenizer(stories(40), config)
    last = tokenizer.vocab_size - 1
    assert tokenizer.vocab_size <= 400
    assert [tokenizer.token_to_id(f"<extra_id_{n}>") for n in range(7)] == [
        last - n for n in range(7)
    ]
    assert not {last - n for n in range(7)} & tokenizer.special_tokens.all


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte-bpe"])
def test_sentinels_leave_room_for_text(kind: str) -> None:
    make_config = TokenizerConfig.parse({"kind": kind, "vocab_size": 100, "sentinels": 90})
    with pytest.raises(UserError, match="100 tokens, 90 of them sentinels, are too few"):
        train_tokenizer(["the cat sat on the mat"], make_config)


def test_too_small_vocabulary_error_states_the_minimum() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    with pytest.raises(
        UserError, match="tokens: raise the vocabulary size to at least that, from 16"
    ):
        train_tokenizer(
            [letters] * 3, TokenizerConfig.parse({"kind": "byte-bpe", "vocab_size": 16})
        )
