"""Public data sets arrive whole, checked, and from where they broke off."""

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

from bertwright.errors import UserError
from bertwright.text import download
from bertwright.text.download import DIGESTS, fetch
from bertwright.text.public_sets import PublicSet, RemoteFile, find_public_set, public_sets

CONTENT = bytes(range(256)) * 4096


class Host(ThreadingHTTPServer):
    """A host of files on this machine that can break off, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/data.bin": CONTENT}
        self.breaks_after: list[int] = []
        """How many bytes each of the next answers brings before the connection breaks."""
        self.knows_ranges = True
        self.states_length = True
        self.asked: list[str] = []
        """The range that each request asked for."""

    def url(self, name: str = "data.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    """Answers as hosts of files do."""

    server: Host

    def do_GET(self) -> None:
        content = self.server.files.get(self.path)
        wanted = self.headers.get("Range", "")
        self.server.asked.append(wanted)
        if content is None:
            self.send_error(404)
            return
        start = int(wanted.split("=")[1].rstrip("-")) if wanted and self.server.knows_ranges else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if self.server.states_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = start + self.server.breaks_after.pop(0) if self.server.breaks_after else None
        self.wfile.write(content[start:stop])

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


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


def data_set(*files: RemoteFile) -> PublicSet:
    return PublicSet("toy", "a toy", "none", "", files)


def one_file(host: Host, sha256: str | None = digest(CONTENT), name: str = "data.bin") -> PublicSet:
    return data_set(RemoteFile(name, (host.url(name),), sha256))


def zipped(**members: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/"), text)
    return written.getvalue()


def test_a_file_arrives(host: Host, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    files = fetch(one_file(host), tmp_path / "deep" / "out", lambda *at: seen.append(at))
    assert files == [tmp_path / "deep" / "out" / "data.bin"]
    assert files[0].read_bytes() == CONTENT
    assert (files[0].parent / DIGESTS).read_text() == f"{digest(CONTENT)}  data.bin\n"
    assert seen[0] == ("data.bin", 0, len(CONTENT))
    assert seen[-1] == ("data.bin", len(CONTENT), len(CONTENT))
    assert {file.name for file in files[0].parent.iterdir()} == {"data.bin", DIGESTS}


def test_a_file_that_is_there_is_not_fetched_again(host: Host, tmp_path: Path) -> None:
    fetch(one_file(host), tmp_path)
    fetch(one_file(host), tmp_path)
    assert len(host.asked) == 1


def test_a_broken_transfer_goes_on_by_itself(host: Host, tmp_path: Path) -> None:
    host.breaks_after = [1000, 300_000]
    (file,) = fetch(one_file(host), tmp_path)
    assert file.read_bytes() == CONTENT
    assert host.asked == ["", "bytes=1000-", "bytes=301000-"]


def test_a_broken_transfer_goes_on_at_the_next_run(host: Host, tmp_path: Path) -> None:
    host.breaks_after = [5000, 0]
    with pytest.raises(UserError, match=r"broke off after 5,000 bytes of .*: run again to go on"):
        fetch(one_file(host), tmp_path)
    assert not (tmp_path / "data.bin").exists()
    (file,) = fetch(one_file(host), tmp_path)
    assert file.read_bytes() == CONTENT
    assert host.asked[-1] == "bytes=5000-"


def test_a_host_that_breaks_off_at_once_is_not_asked_for_ever(host: Host, tmp_path: Path) -> None:
    host.breaks_after = [0] * 10
    with pytest.raises(UserError, match="broke off after 0 bytes"):
        fetch(one_file(host), tmp_path)
    assert len(host.asked) == 1


def test_a_host_without_ranges_begins_anew(host: Host, tmp_path: Path) -> None:
    host.knows_ranges = False
    host.breaks_after = [5000]
    (file,) = fetch(one_file(host), tmp_path)
    assert file.read_bytes() == CONTENT


def test_a_host_that_does_not_say_how_long(host: Host, tmp_path: Path) -> None:
    host.states_length = False
    host.breaks_after = [7000]
    remote = RemoteFile("data.bin", (host.url(),), digest(CONTENT), len(CONTENT))
    (file,) = fetch(data_set(remote), tmp_path)
    assert file.read_bytes() == CONTENT


def test_a_part_that_is_whole_is_taken(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    (file,) = fetch(one_file(host), tmp_path)
    assert file.read_bytes() == CONTENT
    assert host.asked == [f"bytes={len(CONTENT)}-"]


def test_a_part_that_is_too_long_is_thrown_away(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(CONTENT + b"more")
    (file,) = fetch(one_file(host), tmp_path)
    assert file.read_bytes() == CONTENT


def test_a_wrong_digest_leaves_no_file(host: Host, tmp_path: Path) -> None:
    wrong = "0" * 64
    with pytest.raises(UserError, match=f"{digest(CONTENT)} and not {wrong}, so it was removed"):
        fetch(one_file(host, wrong), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_user_is_checked_and_left(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"mine")
    with pytest.raises(UserError, match="remove it and run again"):
        fetch(one_file(host), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"mine"
    (tmp_path / "data.bin").write_bytes(CONTENT)
    fetch(one_file(host), tmp_path)
    assert host.asked == []


def test_an_unknown_digest_is_recorded_and_checked_later(host: Host, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(b"of an older version")
    (file,) = fetch(one_file(host, None), tmp_path)
    assert file.read_bytes() == CONTENT
    digests = tmp_path / DIGESTS
    digests.write_text(f"\n{digests.read_text().replace('  ', ' *')}")
    file.unlink()
    host.files["/data.bin"] = b"changed at its source"
    with pytest.raises(UserError, match=f"and not {digest(CONTENT)}"):
        fetch(one_file(host, None), tmp_path)
    file.write_bytes(b"changed here")
    with pytest.raises(UserError, match=f"and not {digest(CONTENT)}"):
        fetch(one_file(host, None), tmp_path)


def test_a_mirror_helps_out(host: Host, tmp_path: Path) -> None:
    remote = RemoteFile("data.bin", (host.url("gone.bin"), host.url()), digest(CONTENT))
    (file,) = fetch(data_set(remote), tmp_path)
    assert file.read_bytes() == CONTENT


def test_a_file_that_is_gone(host: Host, tmp_path: Path) -> None:
    message = rf"answers 404 .*: download {host.url('gone.bin')} yourself and put it in {tmp_path}"
    with pytest.raises(UserError, match=message):
        fetch(one_file(host, name="gone.bin"), tmp_path)


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    remote = RemoteFile("data.bin", (f"http://{address}/data.bin",), "0" * 64)
    message = rf"get: cannot reach {address} \(Connection refused\): download .* as data\.bin$"
    with pytest.raises(UserError, match=message):
        fetch(data_set(remote), tmp_path)


def test_a_full_disk(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(download.os, "fsync", full)
        with pytest.raises(UserError, match="free some space and run again"):
            fetch(one_file(host), tmp_path)
    (file,) = fetch(one_file(host), tmp_path)
    assert file.read_bytes() == CONTENT


def test_a_folder_that_is_a_file(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be made a folder"):
        fetch(one_file(host), tmp_path / "file")


def test_archives_are_unpacked(host: Host, tmp_path: Path) -> None:
    content = zipped(CoLA__train="a", CoLA__original__raw="b", readme="c", __MACOSX__x="d")
    host.files["/set.zip"] = content
    wanted = one_file(host, digest(content), "set.zip")
    fetch(wanted, tmp_path)
    names = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()}
    assert names == {"set.zip", "readme", "CoLA/train", "CoLA/original/raw", DIGESTS}
    (tmp_path / "CoLA" / "train").write_text("changed by the user")
    (tmp_path / "readme").unlink()
    fetch(wanted, tmp_path)
    assert (tmp_path / "CoLA" / "train").read_text() == "changed by the user"
    assert (tmp_path / "readme").read_text() == "c"


def test_an_archive_cannot_write_elsewhere(host: Host, tmp_path: Path) -> None:
    content = zipped(**{"..__outside": "a", "inside": "b"})
    host.files["/set.zip"] = content
    fetch(one_file(host, None, "set.zip"), tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"out"}
    assert (tmp_path / "out" / "inside").read_text() == "b"


def test_what_is_no_archive(host: Host, tmp_path: Path) -> None:
    host.files["/set.zip"] = b"<html>Sign in first</html>"
    with pytest.raises(UserError, match="is no zip archive"):
        fetch(one_file(host, None, "set.zip"), tmp_path)


def test_the_table_is_sound() -> None:
    sets = public_sets()
    assert {"wikitext-103-raw", "text8", "enwik8", "cola", "squad-2.0", "blimp"} <= set(sets)
    for listed in sets.values():
        names = [file.name for file in listed.files]
        assert len(set(names)) == len(names) > 0
        assert listed.about
        assert listed.licence
        assert listed.use
        for file in listed.files:
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert (file.sha256 is None) == (file.num_bytes is None)
            assert all(re.match(r"https?://[\w.-]+/", url) for url in file.urls)
    assert not sets["uner-en-ewt"].checked
    assert sets["squad-1.1"].num_bytes == 30_288_272 + 4_854_279


def test_a_data_set_that_is_not_in_the_table() -> None:
    with pytest.raises(UserError, match="'wikitext103': did you mean 'wikitext-103-raw'"):
        find_public_set("wikitext103")
