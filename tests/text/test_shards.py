"""What training reads of a prepared data set, and what it says of a damaged one."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_text import stories

from bertwright.errors import UserError
from bertwright.text import shards
from bertwright.text.manifest import MANIFEST
from bertwright.text.marks import DOCUMENT_START, SENTENCE_START, WORD_START
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data, Split, unigram_entropy
from bertwright.text.tokenizers import FILE, Tokenizer


@pytest.fixture
def data(tmp_path: Path, wordpiece: Tokenizer) -> Data:
    (tmp_path / "text.txt").write_text("\n\n".join(stories(200)))
    return prepare(tmp_path / "text.txt", tmp_path / "data", wordpiece, num_workers=1)


@pytest.fixture
def train(data: Data) -> Split:
    return data.split("train")


def test_starts_are_where_the_marks_are(train: Split) -> None:
    marks = train.marks(0, train.num_pieces)
    end = [train.num_pieces]
    for starts, number, bit in (
        (train.document_starts, train.num_documents, DOCUMENT_START),
        (train.sentence_starts, train.num_sentences, SENTENCE_START),
    ):
        assert starts.tolist() == np.flatnonzero(marks & bit).tolist() + end
        assert len(starts) == number + 1
    assert np.count_nonzero(marks & WORD_START) == train.num_words
    assert train.pieces(0, train.num_pieces).dtype == np.int32


def test_gather_is_pieces_row_by_row(train: Split) -> None:
    starts = np.array([0, 7, 7, train.num_pieces - 16])
    pieces, marks = train.gather(starts, 16)
    assert (pieces.dtype, marks.dtype, pieces.shape) == (np.int32, np.uint8, (4, 16))
    for row, start in enumerate(starts.tolist()):
        assert np.array_equal(pieces[row], train.pieces(start, start + 16))
        assert np.array_equal(marks[row], train.marks(start, start + 16))


def test_word_bytes_anywhere(train: Split) -> None:
    marks = train.marks(0, train.num_pieces)
    words = np.flatnonzero(marks & WORD_START)
    everything = train.word_bytes(0, train.num_pieces)
    assert train.num_pieces > 2 * shards.RANK_EVERY
    draw = np.random.default_rng(0)
    for start, stop in np.sort(draw.integers(0, train.num_pieces + 1, (200, 2))).tolist():
        expected = everything[(words >= start) & (words < stop)]
        assert np.array_equal(train.word_bytes(start, stop), expected)
    text = "".join("".join(story.split()) for story in stories(200))
    assert abs(int(everything.sum()) - len(text.encode())) < 0.1 * len(text.encode())


def test_counts_and_entropy(data: Data, train: Split) -> None:
    pieces = train.pieces(0, train.num_pieces)
    assert np.array_equal(data.piece_counts, np.bincount(pieces, minlength=data.tokenizer.size))
    assert unigram_entropy(np.array([4, 0, 4])) == pytest.approx(np.log(2))
    assert data.report["unigram_entropy"] == unigram_entropy(data.piece_counts)


def test_a_large_vocabulary_takes_wider_pieces(wordpiece: Tokenizer, tmp_path: Path) -> None:
    settings = json.loads(wordpiece.backend.to_str())
    names = (f"##filler{number}" for number in range(1 << 16))
    settings["model"]["vocab"] |= {name: wordpiece.size + i for i, name in enumerate(names)}
    settings["model"]["vocab"]["zzz"] = len(settings["model"]["vocab"])
    large = Tokenizer(type(wordpiece.backend).from_str(json.dumps(settings)))
    (tmp_path / "a.txt").write_text("zzz one.\n\nzzz two.\n\nzzz three.")
    data = prepare(tmp_path / "a.txt", tmp_path / "data", large, num_workers=1)
    assert data.manifest.piece_type == "uint32"
    assert data.split("train").pieces(0, 1).tolist() == [large.id("zzz")]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (Path.unlink, "is damaged .it is missing"),
        (truncate, r"is damaged .it has [\d,]+ bytes instead of [\d,]+"),
        (flip, "is damaged .its checksum differs"),
    ],
)
@pytest.mark.parametrize(
    "name", ["train.pieces.bin", "heldout.marks.bin", FILE, "piece_counts.npy"]
)
def test_a_damaged_file_is_named(
    harm: Callable[[Path], None], message: str, name: str, data: Data
) -> None:
    harm(data.path / name)
    with pytest.raises(UserError, match=f"{name} {message}"):
        Data.open(data.path)


def test_large_data_are_checked_when_asked(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(data.path / "train.pieces.bin")
    monkeypatch.setattr(shards, "CHECKED_AT_OPENING", 1000)
    opened = Data.open(data.path)
    with pytest.raises(UserError, match=r"train\.pieces\.bin is damaged"):
        opened.check()


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "holds no prepared data"),
        ("{", "is damaged .it is not a manifest"),
        ('{"schema_version": 99}', "have format 99.*prepare them again"),
        ('{"schema_version": 1}', "is damaged .hash is wrong"),
    ],
)
def test_a_wrong_manifest_is_a_clear_error(manifest: str | None, message: str, data: Data) -> None:
    (data.path / MANIFEST).unlink()
    if manifest is not None:
        (data.path / MANIFEST).write_text(manifest)
    with pytest.raises(UserError, match=message):
        Data.open(data.path)


def test_a_split_that_is_not_there(data: Data) -> None:
    with pytest.raises(UserError, match="no split 'test': it has train, heldout"):
        data.split("test")
