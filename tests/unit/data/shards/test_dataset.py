"""Reading of prepared data sets, and errors for damaged ones."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards import dataset as shards
from bertwright.data.shards.dataset import Dataset, Split, unigram_entropy
from bertwright.data.shards.manifest import MANIFEST
from bertwright.data.shards.subset import SplitSubset
from bertwright.data.tokenization.boundaries import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.data.tokenization.tokenizer import TOKENIZER_FILE, Tokenizer
from small_text import stories


@pytest.fixture
def data(tmp_path: Path, wordpiece: Tokenizer) -> Dataset:
    (tmp_path / "text.txt").write_text("\n\n".join(stories(200)))
    return prepare(tmp_path / "text.txt", tmp_path / "data", wordpiece, num_workers=1)


@pytest.fixture
def train(data: Dataset) -> Split:
    return data.split("train")


def test_starts_match_the_boundaries(data: Dataset, train: Split) -> None:
    boundaries = train.boundaries(0, train.num_tokens)
    end = [train.num_tokens]
    for starts, count, flag in (
        (train.document_starts, train.num_documents, DOCUMENT_START),
        (train.sentence_starts, train.num_sentences, SENTENCE_START),
    ):
        assert starts.tolist() == np.flatnonzero(boundaries & flag).tolist() + end
        assert len(starts) == count + 1
    assert np.count_nonzero(boundaries & WORD_START) == data.manifest.splits["train"].words
    assert train.token_ids(0, train.num_tokens).dtype == np.int32


def test_subset_has_the_attributes_of_a_split(train: Split) -> None:
    subset = SplitSubset(train, np.array([1, 2, 5]), "some")
    public = [name for name in dir(train) if not name.startswith("_")]
    assert [name for name in public if not hasattr(subset, name)] == []


def test_gather(train: Split) -> None:
    starts = np.array([0, 7, 7, train.num_tokens - 16])
    token_ids, boundaries = train.gather(starts, 16)
    assert (token_ids.dtype, boundaries.dtype, token_ids.shape) == (np.int32, np.uint8, (4, 16))
    for row, start in enumerate(starts.tolist()):
        assert np.array_equal(token_ids[row], train.token_ids(start, start + 16))
        assert np.array_equal(boundaries[row], train.boundaries(start, start + 16))


def test_word_bytes_anywhere(train: Split) -> None:
    boundaries = train.boundaries(0, train.num_tokens)
    words = np.flatnonzero(boundaries & WORD_START)
    everything = train.word_bytes(0, train.num_tokens)
    assert train.num_tokens > 2 * shards.WORD_RANK_INTERVAL
    rng = np.random.default_rng(0)
    for start, stop in np.sort(rng.integers(0, train.num_tokens + 1, (200, 2))).tolist():
        expected = everything[(words >= start) & (words < stop)]
        assert np.array_equal(train.word_bytes(start, stop), expected)
    text = "".join("".join(story.split()) for story in stories(200))
    assert abs(int(everything.sum()) - len(text.encode())) < 0.1 * len(text.encode())


def test_counts_and_entropy(data: Dataset, train: Split) -> None:
    token_ids = train.token_ids(0, train.num_tokens)
    assert np.array_equal(
        data.token_counts, np.bincount(token_ids, minlength=data.tokenizer.vocab_size)
    )
    assert unigram_entropy(np.array([4, 0, 4])) == pytest.approx(np.log(2))
    assert data.report["unigram_entropy"] == unigram_entropy(data.token_counts)


def test_large_vocabulary_uses_uint32(wordpiece: Tokenizer, tmp_path: Path) -> None:
    settings = json.loads(wordpiece.backend.to_str())
    names = (f"##filler{n}" for n in range(1 << 16))
    settings["model"]["vocab"] |= {name: wordpiece.vocab_size + i for i, name in enumerate(names)}
    settings["model"]["vocab"]["zzz"] = len(settings["model"]["vocab"])
    large = Tokenizer(type(wordpiece.backend).from_str(json.dumps(settings)))
    (tmp_path / "a.txt").write_text("zzz one.\n\nzzz two.\n\nzzz three.")
    data = prepare(tmp_path / "a.txt", tmp_path / "data", large, num_workers=1)
    assert data.manifest.token_dtype == "uint32"
    assert data.split("train").token_ids(0, 1).tolist() == [large.token_to_id("zzz")]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, "is damaged .it is missing"),
        (truncate, r"is damaged .it has [\d,]+ bytes instead of [\d,]+"),
        (flip, "is damaged .its checksum differs"),
    ],
)
@pytest.mark.parametrize(
    "name", ["train.tokens.bin", "heldout.boundaries.bin", TOKENIZER_FILE, "token_counts.npy"]
)
def test_damaged_file_raises(
    damage: Callable[[Path], None], message: str, name: str, data: Dataset
) -> None:
    damage(data.path / name)
    with pytest.raises(UserError, match=f"{name} {message}"):
        Dataset.open(data.path)


def test_large_data_is_checked_on_request(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(data.path / "train.tokens.bin")
    monkeypatch.setattr(shards, "MAX_BYTES_CHECKED_ON_OPEN", 1000)
    opened = Dataset.open(data.path)
    with pytest.raises(UserError, match=r"train\.tokens\.bin is damaged"):
        opened.check()


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "holds no prepared data"),
        ("{", "is damaged .it is not a manifest"),
        ('{"schema_version": 99}', "has format 99.*prepare it again"),
        ('{"schema_version": 1}', "is damaged .hash is wrong"),
    ],
)
def test_invalid_manifest_raises(manifest: str | None, message: str, data: Dataset) -> None:
    (data.path / MANIFEST).unlink()
    if manifest is not None:
        (data.path / MANIFEST).write_text(manifest)
    with pytest.raises(UserError, match=message):
        Dataset.open(data.path)


def test_unknown_split_raises(data: Dataset) -> None:
    with pytest.raises(UserError, match="no split 'test': it has train, heldout"):
        data.split("test")
