"""Texts, and data folders, in object storage: as on the local disk, in spite of cut connections."""

import json
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from bertwright.core import object_storage
from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.files import require_new_folder
from bertwright.core.object_storage import read_file, storage_url
from bertwright.data.preparation import prepare
from bertwright.data.shards import remote
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer
from small_text import stories


class CutConnections(MemoryFileSystem):
    """A memory file system whose connections break after a hundred bytes."""

    protocol = "cut"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        stream = super()._open(path, mode, **options)
        return _CutStream(stream) if mode == "rb" else stream


class _CutStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size = len(stream.getbuffer())

    def seek(self, offset: int) -> None:
        self._stream.seek(offset)
        self._left = 100

    def read(self, size: int) -> bytes:
        if self._left == 0:
            raise ConnectionResetError("the connection was reset")
        block = self._stream.read(min(size, self._left))
        self._left -= len(block)
        return block

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[CutConnections]]:
    """Return the storage behind ``cut://``; that behind ``memory://`` is empty."""
    monkeypatch.setattr(object_storage, "WAIT_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    register_implementation("cut", CutConnections, clobber=True)
    for kind in (MemoryFileSystem, CutConnections):
        kind.store.clear()
        kind.pseudo_dirs[:] = [""]
    yield CutConnections
    MemoryFileSystem.store.clear()


def put(url: str, content: str) -> None:
    import fsspec

    with fsspec.open(url, "w") as file:
        file.write(content)


def local_data(folder: Path, wordpiece: Tokenizer, num_stories: int = 30) -> Dataset:
    text = folder / f"{num_stories}.txt"
    text.write_text("\n\n".join(stories(num_stories)))
    return prepare(text, folder / f"data-{num_stories}", wordpiece, num_workers=1)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        (Path("gs://bucket/a"), "gs://bucket/a"),
        (Path("file:///tmp/a"), "file:///tmp/a"),
        ("text/a.txt", None),
        ("C:/texts", None),
        (Path("a:b"), None),
    ],
)
def test_urls(path: str | Path, url: str | None) -> None:
    assert storage_url(path) == url


@pytest.mark.parametrize("scheme", ["memory", "cut"])
def test_data_in_storage_is_that_of_local_files(
    scheme: str, tmp_path: Path, wordpiece: Tokenizer
) -> None:
    local = local_data(tmp_path, wordpiece)
    put(f"{scheme}://text/a.txt", "\n\n".join(stories(20)))
    put(
        f"{scheme}://text/b.jsonl",
        "".join(json.dumps({"text": s}) + "\n" for s in stories(30)[20:]),
    )
    put(f"{scheme}://text/c.pdf", "not read")
    url = f"{scheme}://bucket/data"
    written = prepare(f"{scheme}://text", url, wordpiece, num_workers=1)
    assert written.report["tokens"] == local.report["tokens"]
    assert written.report["ignored_files"] == 1
    assert not (tmp_path / "cache").exists(), "nothing is copied before it is read"
    opened = Dataset.open(Path(url))
    assert opened.origin == url
    assert opened.manifest.hash == written.manifest.hash == local.manifest.hash
    for split in ("train", "heldout"):
        a, b = local.split(split), opened.split(split)
        assert np.array_equal(a.token_ids(0, a.num_tokens), b.token_ids(0, b.num_tokens))
    assert opened.tokenizer.hash == wordpiece.hash


def test_a_copy_is_made_once_continued_and_checked(
    tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = local_data(tmp_path, wordpiece)
    url = "memory://bucket/data"
    prepare(tmp_path / "30.txt", url, wordpiece, num_workers=1)
    copy = tmp_path / "cache" / "bertwright" / "data" / local.manifest.hash[:32]
    copy.mkdir(parents=True)
    tokens = (local.path / "train.tokens.bin").read_bytes()
    (copy / "train.tokens.bin").write_bytes(tokens[:50])  # broken off
    blocks: list[tuple[str, int]] = []
    read_blocks = remote.read_blocks
    monkeypatch.setattr(remote, "read_blocks", lambda *a: blocks.append(a) or read_blocks(*a))
    assert Dataset.open(url).path == copy
    assert (f"{url}/train.tokens.bin", 50) in blocks
    assert (copy / "train.tokens.bin").read_bytes() == tokens
    blocks.clear()
    Dataset.open(url)
    assert not blocks
    (copy / remote.COMPLETE).unlink()
    damaged = bytes([tokens[0] ^ 1]) + tokens[1:]
    (copy / "train.tokens.bin").write_bytes(damaged)
    with pytest.raises(UserError, match=r"train.tokens.bin is damaged \(its checksum differs\)"):
        Dataset.open(url)
    assert Dataset.open(url).path == copy, "the damaged file was removed"


def test_the_disk_is_bounded(
    tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"memory://bucket/{number}" for number in (30, 31)]
    for number, url in zip((30, 31), urls, strict=True):
        local_data(tmp_path, wordpiece, number)
        prepare(tmp_path / f"{number}.txt", url, wordpiece, num_workers=1)
    first = Dataset.open(urls[0]).path
    size = sum(file.stat().st_size for file in first.iterdir())
    monkeypatch.setenv(remote.LIMIT_VARIABLE, str(1.5 * size / 1e9))
    second = Dataset.open(urls[1]).path
    assert second.exists()
    assert not first.exists(), "the copy used least recently makes room"
    in_use = pickle.loads(pickle.dumps(Dataset.open(urls[1])))
    with pytest.raises(UserError, match="raise BERTWRIGHT_DATA_GIGABYTES"):
        Dataset.open(urls[0])
    assert in_use.split("heldout").num_tokens
    del in_use
    (second / remote.COMPLETE).unlink()
    assert Dataset.open(urls[0]).path == first
    assert not second.exists(), "so does a copy that broke off"
    storage, path = object_storage.open_storage(urls[1])
    storage.pipe(f"{path}/manifest.json", b"{")
    with pytest.raises(UserError, match=r"^memory://bucket/31/manifest\.json is damaged"):
        Dataset.open(urls[1])
    shutil.rmtree(first)
    monkeypatch.setenv(remote.LIMIT_VARIABLE, "1e-6")
    with pytest.raises(UserError, match=r"has room for 0\.0 GB: set XDG_CACHE_HOME"):
        Dataset.open(urls[0])
    monkeypatch.setenv(remote.LIMIT_VARIABLE, "much")
    with pytest.raises(UserError, match="is 'much', not a number of gigabytes"):
        Dataset.open(urls[0])


def test_a_preparation_that_fails_leaves_nothing(tmp_path: Path, wordpiece: Tokenizer) -> None:
    put("memory://text/a.jsonl", '{"text": "One. Two. Three."}\nnot JSON\n')
    with pytest.raises(UserError, match=r"memory://text/a.jsonl, line 2 is not JSON"):
        prepare("memory://text", "memory://bucket/data", wordpiece, num_workers=1)
    assert [name for name in MemoryFileSystem.store if name.startswith("/bucket")] == []
    local_data(tmp_path, wordpiece)
    prepare(tmp_path / "30.txt", "memory://bucket/data", wordpiece, num_workers=1)
    with pytest.raises(UserError, match="memory://bucket/data already exists"):
        prepare(tmp_path / "30.txt", "memory://bucket/data", wordpiece, num_workers=1)


def test_errors_are_one_sentence(
    tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"memory://none holds no prepared data .*no such bucket"):
        Dataset.open("memory://none")
    with pytest.raises(UserError, match="memory://none: there is no such file, folder or bucket"):
        prepare("memory://none", tmp_path / "data", wordpiece)
    with pytest.raises(UserError, match=r"there is no storage what://"):
        Dataset.open("what://bucket/data")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtra, match=r"s3fs is not installed: .*bertwright\[storage\]"):
        Dataset.open("s3://bucket/data")
    with pytest.raises(UserError, match="s3://bucket/run is in object storage, to which only"):
        require_new_folder(Path("s3://bucket/run"))
    monkeypatch.setattr(_CutStream, "seek", lambda self, offset: setattr(self, "_left", 0))
    put("cut://text/a.txt", "One. Two.")
    with pytest.raises(UserError, match=r"a.txt cannot be reached \(the connection was reset\)"):
        read_file("cut://text/a.txt")


def test_a_file_that_ends_early_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "".join(map(str, range(200)))
    put("cut://text/a.txt", content)
    read = _CutStream.read
    monkeypatch.setattr(
        _CutStream, "read", lambda self, size: read(self, size) if self._left else b""
    )
    assert read_file("cut://text/a.txt").decode() == content
