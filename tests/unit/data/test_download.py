"""Downloads are complete, verified and resumable."""

import errno
import hashlib
import io
import re
import socket
import threading
import zipfile
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bertwright.core.errors import UserError
from bertwright.data import download
from bertwright.data.download import DIGESTS_FILE, fetch
from bertwright.data.public_datasets import (
    PublicDataset,
    RemoteFile,
    find_public_dataset,
    public_datasets,
)

CONTENT = bytes(range(256)) * 4096


class Host(ThreadingHTTPServer):
    """A local file server that can disconnect, and records requested ranges."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/data.bin": CONTENT}
        self.disconnect_after: list[int] = []
        """Bytes that the next responses send before they disconnect."""
        self.supports_ranges = True
        self.sends_length = True
        self.requested_ranges: list[str] = []
        """Range header of each request."""

    def url(self, name: str = "data.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    """A handler of file requests."""

    server: Host

    def do_GET(self) -> None:
        content = self.server.files.get(self.path)
        requested = self.headers.get("Range", "")
        self.server.requested_ranges.append(requested)
        if content is None:
            self.send_error(404)
            return
        start = (
            int(requested.split("=")[1].rstrip("-"))
            if requested and self.server.supports_ranges
            else 0
        )
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.sends_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = start + self.server.disconnect_after.pop(0) if self.server.disconnect_after else None
        self.wfile.write(content[start:stop])

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Generator[Host]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Host() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_data_set(*files: RemoteFile) -> PublicDataset:
    return PublicDataset("toy", "a toy", "none", "", files)


def make_single_file_set(
    host: Host, sha256: str | None = digest(CONTENT), name: str = "data.bin"
) -> PublicDataset:
    return make_data_set(RemoteFile(name, (host.url(name),), sha256))


def zipped(**members: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/"), text)
    return written.getvalue()


def test_download(host: Host, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    files = fetch(
        make_single_file_set(host), tmp_path / "deep" / "out", lambda *at: calls.append(at)
    )
    assert files == [tmp_path / "deep" / "out" / "data.bin"]
    assert files[0].read_bytes() == CONTENT
    assert (files[0].parent / DIGESTS_FILE).read_text() == f"{digest(CONTENT)}  data.bin\n"
    assert calls[0] == ("data.bin", 0, len(CONTENT))
    assert calls[-1] == ("data.bin", len(CONTENT), len(CONTENT))
    assert {file.name for file in files[0].parent.iterdir()} == {"data.bin", DIGESTS_FILE}


def test_existing_file_is_not_downloaded_again(host: Host, tmp_path: Path) -> None:
    fetch(make_single_file_set(host), tmp_path)
    fetch(make_single_file_set(host), tmp_path)
    assert len(host.requested_ranges) == 1


def test_broken_download_resumes(host: Host, tmp_path: Path) -> None:
    host.disconnect_after = [1000, 300_000]
    (file,) = fetch(make_single_file_set(host), tmp_path)
    assert file.read_bytes() == CONTENT
    assert host.requested_ranges == ["", "bytes=1000-", "bytes=301000-"]


def test_broken_download_resumes_in_the_next_run(host: Host, tmp_path: Path) -> None:
    host.disconnect_after = [5000, 0]
    with pytest.raises(
        UserError, match=r"closed the connection after 5,000 bytes of .*: run again to continue"
    ):
        fetch(make_single_file_set(host), tmp_path)
    assert not (tmp_path / "data.bin").exists()
    (file,) = fetch(make_single_file_set(host), tmp_path)
    assert file.read_bytes() == CONTENT
    assert host.requested_ranges[-1] == "bytes=5000-"


def test_download_without_progress_raises(host: Host, tmp_path: Path) -> None:
    host.disconnect_after = [0] * 10
    with pytest.raises(UserError, match="closed the connection after 0 bytes"):
        fetch(make_single_file_set(host), tmp_path)
    assert len(host.requested_ranges) == 1


def test_host_without_ranges_restarts_the_download(host: Host, tmp_path: Path) -> None:
    host.supports_ranges = False
    host.disconnect_after = [5000]
    (file,) = fetch(make_single_file_set(host), tmp_path)
    assert file.read_bytes() == CONTENT


def test_host_without_content_length(host: Host, tmp_path: Path) -> None:
    host.sends_length = False
    host.disconnect_after = [7000]
    remote = RemoteFile("data.bin", (host.url(),), digest(CONTENT), len(CONTENT))
    (file,) = fetch(make_data_set(remote), tmp_path)
    assert file.read_bytes() == CONTENT


def test_complete_partial_file_is_used(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    (file,) = fetch(make_single_file_set(host), tmp_path)
    assert file.read_bytes() == CONTENT
    assert host.requested_ranges == [f"bytes={len(CONTENT)}-"]


def test_too_long_partial_file_is_removed(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT + b"more")
    (file,) = fetch(make_single_file_set(host), tmp_path)
    assert file.read_bytes() == CONTENT


def test_wrong_digest_removes_the_file(host: Host, tmp_path: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(UserError, match=f"{digest(CONTENT)} and not {wrong}, so it was removed"):
        fetch(make_single_file_set(host, wrong), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_wrong_existing_file_is_kept(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"mine")
    with pytest.raises(UserError, match="remove it and run again"):
        fetch(make_single_file_set(host), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"mine"
    (tmp_path / "data.bin").write_bytes(CONTENT)
    fetch(make_single_file_set(host), tmp_path)
    assert host.requested_ranges == []


def test_unpublished_digest_is_stored_and_checked(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"of an older version")
    (file,) = fetch(make_single_file_set(host, None), tmp_path)
    assert file.read_bytes() == CONTENT
    digests = tmp_path / DIGESTS_FILE
    digests.write_text(f"\n{digests.read_text().replace('  ', ' *')}")
    file.unlink()
    host.files["/data.bin"] = b"changed at its source"
    with pytest.raises(UserError, match=f"and not {digest(CONTENT)}"):
        fetch(make_single_file_set(host, None), tmp_path)
    file.write_bytes(b"changed here")
    with pytest.raises(UserError, match=f"and not {digest(CONTENT)}"):
        fetch(make_single_file_set(host, None), tmp_path)


def test_mirror_is_used(host: Host, tmp_path: Path) -> None:
    remote = RemoteFile("data.bin", (host.url("gone.bin"), host.url()), digest(CONTENT))
    (file,) = fetch(make_data_set(remote), tmp_path)
    assert file.read_bytes() == CONTENT


def test_missing_file_on_the_host_raises(host: Host, tmp_path: Path) -> None:
    message = rf"returns 404 .*: download {host.url('gone.bin')} yourself and put it in {tmp_path}"
    with pytest.raises(UserError, match=message):
        fetch(make_single_file_set(host, name="gone.bin"), tmp_path)


def test_unreachable_host_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    remote = RemoteFile("data.bin", (f"http://{address}/data.bin",), "0" * 64)
    message = rf"get: cannot reach {address} \(Connection refused\): download .* as data\.bin$"
    with pytest.raises(UserError, match=message):
        fetch(make_data_set(remote), tmp_path)


def test_full_disk(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(download.os, "fsync", full)
        with pytest.raises(UserError, match="free some space and run again"):
            fetch(make_single_file_set(host), tmp_path)
    (file,) = fetch(make_single_file_set(host), tmp_path)
    assert file.read_bytes() == CONTENT


def test_output_that_is_a_file_raises(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be created"):
        fetch(make_single_file_set(host), tmp_path / "file")


def test_archives_are_unpacked(host: Host, tmp_path: Path) -> None:
    content = zipped(CoLA__train="a", CoLA__original__raw="b", readme="c", __MACOSX__x="d")
    host.files["/set.zip"] = content
    requested = make_single_file_set(host, digest(content), "set.zip")
    fetch(requested, tmp_path)
    names = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert names == {"set.zip", "readme", "CoLA/train", "CoLA/original/raw", DIGESTS_FILE}
    (tmp_path / "CoLA" / "train").write_text("changed by the user")
    (tmp_path / "readme").unlink()
    fetch(requested, tmp_path)
    assert (tmp_path / "CoLA" / "train").read_text() == "changed by the user"
    assert (tmp_path / "readme").read_text() == "c"


def test_archive_cannot_write_outside_the_folder(host: Host, tmp_path: Path) -> None:
    content = zipped(**{"..__outside": "a", "inside": "b"})
    host.files["/set.zip"] = content
    fetch(make_single_file_set(host, None, "set.zip"), tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"out"}
    assert (tmp_path / "out" / "inside").read_text() == "b"


def test_invalid_archive_raises(host: Host, tmp_path: Path) -> None:
    host.files["/set.zip"] = b"<html>Sign in first</html>"
    with pytest.raises(UserError, match="is not a zip archive"):
        fetch(make_single_file_set(host, None, "set.zip"), tmp_path)


def test_table_is_valid() -> None:
    sets = public_datasets()
    assert {"wikitext-103-raw", "text8", "enwik8", "cola", "squad-2.0", "blimp"} <= set(sets)
    for data_set_entry in sets.values():
        names = [file.name for file in data_set_entry.files]
        assert len(set(names)) == len(names) > 0
        assert data_set_entry.description
        assert data_set_entry.licence
        assert data_set_entry.usage
        for file in data_set_entry.files:
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert (file.sha256 is None) == (file.num_bytes is None)
            assert all(re.match(r"https?://[\w.-]+/", url) for url in file.urls)
    assert not sets["uner-en-ewt"].has_checksums
    assert sets["squad-1.1"].num_bytes == 30_288_272 + 4_854_279


def test_unknown_data_set_raises() -> None:
    with pytest.raises(UserError, match="'wikitext103': did you mean 'wikitext-103-raw'"):
        find_public_dataset("wikitext103")
