"""Reading takes bounded memory and linear time for any input."""

import gzip
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pytest
import zstandard
from pyarrow import parquet

from bertwright.core.errors import UserError
from bertwright.data.document import ReadCounts, split_long_line
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.streams import read_bytes
from bertwright.data.readers.tables import read_documents

MB = 1 << 20


def read(path: Path) -> int:
    """Return the number of documents of a file."""
    return sum(1 for _ in read_documents(find_sources([path]), ReadCounts()))


@pytest.mark.parametrize(
    ("ending", "pack"),
    [(".zst", zstandard.ZstdCompressor().compress), (".gz", gzip.compress)],
)
def test_decompression_bomb_is_read_in_small_blocks(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / f"a.txt{ending}"
    file.write_bytes(pack(b"a" * (100 * MB)))
    assert file.stat().st_size < MB
    tracemalloc.start()
    try:
        with open(file, "rb") as raw:
            sizes = [len(block) for block in read_bytes(raw, str(file), ReadCounts())]
        assert tracemalloc.get_traced_memory()[1] < 80 * MB
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 100 * MB
    assert max(sizes) <= MB // 4


def test_large_zstd_window_raises(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj().compress
    (tmp_path / "a.txt.zst").write_bytes(packed(b"a" * MB) + b"\0")
    with pytest.raises(UserError, match=r"a\.txt\.zst needs more than 128 MB .* zstd -d --long=31"):
        read(tmp_path / "a.txt.zst")


def test_long_row_takes_linear_time(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "some words " * (2 * MB)}))
    start = time.process_time()
    assert read(tmp_path / "a.jsonl") > 20
    assert time.process_time() - start < 8


def test_splitting_copies_each_character_once() -> None:
    class Line(str):
        """A string that counts copied characters."""

        copied = 0

        def __getitem__(self, index: slice) -> "str":
            part = str.__getitem__(self, index)
            Line.copied += len(part)
            return part

    line = Line("a" * (8 * MB))
    assert sum(map(len, split_long_line(line, ReadCounts()))) == len(line)
    assert Line.copied < 3 * len(line)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "' + b"a" * (34 * MB), "holds a line of more than 33,554,432"),
        ("a.csv", b'text\n"' + b"a b c\n" * (6 * MB), "row that begins in line 2 is not CSV"),
        ("a.jsonl", b'{"text": ' + b"[" * 100_000, "line 1 is not JSON: more than 100 lists"),
        ("a.jsonl", b'{"text": ' + b"[" * 500 + b"]" * 500 + b"}", "more than 100 lists"),
        ("a.json", b"[" * 100_000, "a.json is not JSON: more than 100 lists"),
        (
            "a.jsonl",
            b'{"text": ' + b"9" * 5_000 + b"}",
            "line 1 is not JSON: a number has too many digits",
        ),
    ],
)
def test_too_long_or_too_deep_input_raises(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        read(tmp_path / name)
    assert len(str(raised.value)) < 500


def test_dictionary_encoded_cell_is_not_multiplied(tmp_path: Path) -> None:
    cell = "word " * (MB // 5) * 40
    column = arrow.DictionaryArray.from_arrays(arrow.array([0] * 100, arrow.int32()), [cell])
    parquet.write_table(
        arrow.table({"text": column}), tmp_path / "a.parquet", dictionary_pagesize_limit=1 << 30
    )
    documents = read_documents(find_sources([tmp_path / "a.parquet"]), ReadCounts())
    before = arrow.total_allocated_bytes()
    next(documents)
    assert arrow.total_allocated_bytes() - before < 600 * MB


def test_too_large_cell_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.data.readers.parquet._MAX_BATCH_BYTES", MB)
    cell = arrow.array(["a" * (3 * MB)])
    parquet.write_table(arrow.table({"text": cell}), tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(UserError, match=r"a\.parquet: the rows from 1 on have .* bytes"):
        read(tmp_path / "a.parquet")
