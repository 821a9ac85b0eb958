"""Texts that share a long run of pieces with the training text are found, and no others."""

import pytest

from bertwright.text import overlap
from bertwright.text.overlap import standing_in
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordsChoice
from bertwright.text.vocabularies import train_tokenizer

WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("overlap")
    tokenizer = train_tokenizer([" ".join(WORDS)], WordsChoice(size=80))
    (folder / "a.txt").write_text(" ".join(WORDS))
    return prepare(folder / "a.txt", folder / "data", tokenizer, heldout=0.0, num_workers=1)


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        (WORDS[3:16], True),
        (WORDS[:3] + WORDS[47:], True),
        (WORDS[:12] + WORDS[13:25], False),
        (WORDS[20:28], True),
        (WORDS[20:27], False),
        (WORDS[20:24] + WORDS[25:30], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_a_text_stands_there_where_a_run_of_it_does(
    data: Data, text: list[str], stands: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_BLOCK", block)
    assert standing_in(data, ["w1", " ".join(text)]) == [False, stands]
