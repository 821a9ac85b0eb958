"""Texts that share an n-gram with the training split, and no others, are contaminated."""

import pytest

from bertwright.data.preparation import prepare
from bertwright.data.shards import contamination as overlap
from bertwright.data.shards.contamination import find_contaminated
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer

WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("overlap")
    tokenizer = train_tokenizer([" ".join(WORDS)], WordLevelConfig(vocab_size=80))
    (folder / "a.txt").write_text(" ".join(WORDS))
    return prepare(folder / "a.txt", folder / "data", tokenizer, heldout=0.0, num_workers=1)


@pytest.mark.parametrize(
    ("text", "is_contaminated"),
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
@pytest.mark.parametrize("block_length", [1, 7, 1 << 18])
def test_contamination(
    data: Dataset,
    text: list[str],
    is_contaminated: bool,
    block_length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap, "_BLOCK_LENGTH", block_length)
    assert find_contaminated(data, ["w1", " ".join(text)]) == [False, is_contaminated]
