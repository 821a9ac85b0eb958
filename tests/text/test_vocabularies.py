"""Learning a vocabulary: nothing is left to chance."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from small_text import KINDS, stories

from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.recipes.loading import systems
from bertwright.text import vocabularies
from bertwright.text.tokenizers import ItemsChoice, Tokenizer, TokenizerChoice
from bertwright.text.vocabularies import train_on_files, train_tokenizer

HASHES = """
import sys
import bertwright.text.processes
bertwright.text.processes.CHUNK_CHARACTERS = 500
from small_text import KINDS, stories
from bertwright.text.tokenizers import TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer
for kind in KINDS:
    choice = TokenizerChoice.choose({"kind": kind, "size": 400})
    print(train_tokenizer(stories(40), choice, int(sys.argv[1])).hash)
"""


def choice(kind: str, size: int = 400) -> TokenizerChoice:
    return TokenizerChoice.choose({"kind": kind, "size": size})


def test_the_same_in_every_process_whatever_their_number() -> None:
    here = [train_tokenizer(stories(40), choice(kind)).hash for kind in KINDS]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{HASHES}"]
    running = [
        subprocess.Popen([*command, workers], stdout=subprocess.PIPE, text=True)
        for workers in ("1", "2")
    ]
    for process in running:
        assert process.communicate()[0].split() == here


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_texts_does_not_matter(kind: str) -> None:
    texts = stories(40)
    assert (
        train_tokenizer(texts, choice(kind)).hash == train_tokenizer(texts[::-1], choice(kind)).hash
    )


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_no_more_pieces_than_asked_for(kind: str) -> None:
    assert train_tokenizer(stories(60), choice(kind, 400)).size <= 400


def test_frequent_words_are_pieces(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.encode(" lighthouse")) == 1


def test_rare_characters_get_no_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabularies, "CHARACTER_COVERAGE", 0.99)
    tokenizer = train_tokenizer(["common words " * 100, "\u16a0"], choice("wordpiece"))
    assert tokenizer.encode("\u16a0") == [tokenizer.specials.unknown]


def test_counts_of_a_large_text_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_tokenizer(stories(60), choice("wordpiece"))
    monkeypatch.setattr(vocabularies, "MOST_WORDS_FED", 500)
    monkeypatch.setattr(vocabularies, "MOST_DISTINCT_WORDS", 20)
    scaled = train_tokenizer(stories(60), choice("wordpiece"))
    assert 100 < scaled.size < whole.size
    assert scaled.encode("lighthouse") == [scaled.id("lighthouse")]


def test_lines_without_spaces_are_learned_from() -> None:
    """Of a language that writes none: its lines are longer than any word."""
    generator = random.Random(0)
    letters = [chr(0x0E01 + number) for number in range(40)]
    rare = chr(0x0E50)
    texts = ["".join(generator.choices(letters, k=70)) + rare * (n == 0) for n in range(200)]
    tokenizer = train_tokenizer(texts, choice("unigram", 300))
    assert tokenizer.size > 200
    assert tokenizer.specials.unknown not in tokenizer.encode(texts[1])


def test_an_alphabet_that_no_word_is_made_of_is_named() -> None:
    with pytest.raises(UserError, match="ask for more pieces"):
        train_tokenizer(["abcdefghijklmnop"] * 3, choice("wordpiece", 16))


@pytest.mark.parametrize("system", systems())
def test_every_system_has_a_tokenizer_that_can_be_made(system: str) -> None:
    choice = Recipe.load(system).text.tokenizer
    if isinstance(choice, ItemsChoice):
        return  # prepare makes it from histories
    text = "".join(map(chr, range(32, 127)))
    assert train_tokenizer([text] * 3, choice.model_copy(update={"size": 800})).size <= 800


def test_no_word_is_an_error() -> None:
    with pytest.raises(UserError, match="no word"):
        train_tokenizer(["  \n "], choice("wordpiece"))


def test_bytes_cannot_be_lower_cased() -> None:
    lower = TokenizerChoice.choose({"kind": "byte-bpe", "size": 400, "lowercase": True})
    with pytest.raises(UserError, match="--lowercase"):
        train_tokenizer(stories(5), lower)


def test_from_files_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(stories(30)))
    (tmp_path / "b.txt").write_text("\n\n".join(stories(10)))  # again the first ten
    settings = {"kind": "wordpiece", "size": 400}
    one = train_on_files([tmp_path / "a.txt"], tmp_path / "one", settings, num_workers=1)
    both = train_on_files([tmp_path], tmp_path / "both", settings, num_workers=1)
    assert one.hash == both.hash == Tokenizer.load(tmp_path / "one").hash
    with pytest.raises(UserError, match="already exists"):
        train_on_files([tmp_path], tmp_path / "one", settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "wordpeice"}, "did you mean 'wordpiece'"),
        ({"kind": "wordpiece", "size": 3}, "size"),
        ({"kind": "wordpiece", "sise": 300}, "sise"),
    ],
)
def test_wrong_settings_are_one_sentence(
    settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        train_on_files([tmp_path], tmp_path / "out", settings)


@pytest.mark.parametrize("kind", KINDS)
def test_sentinels_are_the_last_pieces_and_count_down(kind: str) -> None:
    chosen = choice(kind).model_copy(update={"sentinels": 7})
    tokenizer = train_tokenizer(stories(40), chosen)
    last = tokenizer.size - 1
    assert tokenizer.size <= 400
    assert [tokenizer.id(f"<extra_id_{n}>") for n in range(7)] == [last - n for n in range(7)]
    assert not {last - n for n in range(7)} & tokenizer.specials.all


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte-bpe"])
def test_sentinels_leave_room_for_text(kind: str) -> None:
    choice = TokenizerChoice.choose({"kind": kind, "size": 100, "sentinels": 90})
    with pytest.raises(UserError, match="90 of 100 pieces cannot be sentinels"):
        train_tokenizer(["the cat sat on the mat"], choice)


def test_a_vocabulary_that_cannot_be_so_small_says_how_large_it_must_be() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    with pytest.raises(UserError, match="pieces: ask for as many at least, not 16"):
        train_tokenizer([letters] * 3, TokenizerChoice.choose({"kind": "byte-bpe", "size": 16}))
