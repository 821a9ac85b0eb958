"""A server on loopback that speaks the part of the Hub's API that its clients use.

Large files (safetensors, Parquet) are LFS files: the Hub states their SHA-256 and redirects to
another address. Others are Git blobs, named by Git's SHA-1. Faults are set on the server.
"""

import base64
import hashlib
import json
import re
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

LFS_SUFFIXES = (".safetensors", ".parquet", ".bin", ".onnx")
TOKEN = "hf_" + "t" * 34


@dataclass
class Repository:
    """The commits of a repository: files by path, for every commit, and the names of commits."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    is_gated: bool = False
    is_private: bool = False

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Add a commit and return its hash."""
        content = repr(sorted((path, git_hash(data)) for path, data in files.items()))
        sha = hashlib.sha1(f"{len(self.commits)} {content}".encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.refs[ref] = sha
        return sha

    def find(self, revision: str) -> str | None:
        """Return the hash of a commit."""
        return self.refs.get(revision, revision if revision in self.commits else None)


class Hub(ThreadingHTTPServer):
    """A Hub whose repositories and faults a test sets."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.storage_url = f"http://localhost:{self.server_address[1]}"
        """Address of large files, another host to the clients."""
        self.clear()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, but not connections that a client closes, as on a full disk."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def clear(self) -> None:
        """Remove all repositories, faults and recorded requests."""
        self.repositories: dict[str, Repository] = {}
        """Repositories by ``models/owner/name`` or ``datasets/owner/name``."""
        self.uploads: dict[str, bytes] = {}
        """Uploaded LFS files by SHA-256."""
        self.cut_after: list[int] = []
        """Bytes that the next responses with an LFS file send before they close the connection."""
        self.replaced: dict[str, bytes] = {}
        """Content that is sent for a path instead of the file's."""
        self.requests: list[str] = []
        """Method, path and range of every request."""
        self.sent_bytes = 0
        """Bytes of the contents of all files that were sent."""

    def add(
        self, name: str, files: Mapping[str, bytes | str] | Path, kind: str = "model"
    ) -> Repository:
        """Add a repository with one commit, of these files or of those in a folder."""
        if isinstance(files, Path):
            content = {
                str(f.relative_to(files)): f.read_bytes() for f in files.rglob("*") if f.is_file()
            }
        else:
            content = {p: d.encode() if isinstance(d, str) else d for p, d in files.items()}
        repository = self.repositories[f"{kind}s/{name}"] = Repository()
        repository.commit(content)
        return repository

    def requested(self, part: str) -> list[str]:
        """Return the requests whose path has a part."""
        return [request for request in self.requests if part in request]


@contextmanager
def running_hub() -> Generator[Hub]:
    """Serve an empty Hub from a thread."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


@pytest.fixture(scope="module")
def hub_server() -> Generator[Hub]:
    """A Hub for the tests of a module."""
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(hub_server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """An empty Hub that the clients in this process use, with an empty cache and no token."""
    hub_server.clear()
    use_hub(hub_server, tmp_path / "hugging-face", monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return hub_server


@pytest.fixture
def dataset_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """An empty Hub that the ``datasets`` library uses, too."""
    import datasets  # takes long to import

    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    return hub


def use_hub(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the imported clients to a Hub, with an empty cache and no token."""
    from huggingface_hub import constants, file_download

    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    values = {
        "ENDPOINT": hub.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache / "hub"),
        "HF_TOKEN_PATH": str(cache / "token"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
        "DOWNLOAD_CHUNK_SIZE": 1 << 12,
    }
    for name, value in values.items():
        monkeypatch.setattr(constants, name, value)


def hub_environment(hub: Hub, cache: Path) -> dict[str, str]:
    """Return the environment variables with which a process uses a Hub."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }


def git_hash(content: bytes) -> str:
    """Return Git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        address = urlsplit(self.path)
        query, byte_range = parse_qs(address.query), self.headers.get("Range", "")
        self.server.requests.append(f"{self.command} {address.path} {byte_range}".strip())
        for pattern, handle in _ROUTES:
            if match := re.fullmatch(pattern, address.path):
                parts = {n: None if p is None else unquote(p) for n, p in match.groupdict().items()}
                handle(self, body, query, **parts)
                return
        self._fail(404, "EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815

    def _json(self, content: Any, status: int = 200) -> None:
        self._bytes(json.dumps(content).encode(), {"Content-Type": "application/json"}, status)

    def _bytes(self, content: bytes, headers: Mapping[str, str], status: int = 200) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.server.sent_bytes += len(content)
            self.wfile.write(content)

    def _fail(self, status: int, code: str = "", message: str = "") -> None:
        self._bytes(b"", {"X-Error-Code": code, "X-Error-Message": message or code}, status)

    def _has_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _commit(self, kind: str, name: str, revision: str) -> tuple[Repository, str] | None:
        """Return a repository and a commit; None after an answer that there is none."""
        repository = self.server.repositories.get(f"{kind}/{name}")
        if repository is None:
            self._fail(401 if not self._has_token() else 404, "RepoNotFound")
        elif repository.is_private and not self._has_token():
            self._fail(401, "RepoNotFound")
        elif (sha := repository.find(revision)) is None:
            self._fail(404, "RevisionNotFound")
        else:
            return repository, sha
        return None

    def _info(self, body: bytes, query: Any, kind: str, name: str, revision: str = "main") -> None:
        if commit_of_name := self._commit(kind, name, revision):
            repository, sha = commit_of_name
            self._json(
                {
                    "id": name,
                    "sha": sha,
                    "private": repository.is_private,
                    "gated": "auto" if repository.is_gated else False,
                    "disabled": False,
                    "downloads": 0,
                    "likes": 0,
                    "tags": [],
                    "siblings": [{"rfilename": path} for path in sorted(repository.commits[sha])],
                }
            )

    def _tree(
        self,
        body: bytes,
        query: Any,
        kind: str,
        name: str,
        revision: str,
        folder: str | None = None,
    ) -> None:
        if commit_of_name := self._commit(kind, name, revision):
            repository, sha = commit_of_name
            files, prefix = repository.commits[sha], f"{folder}/" if folder else ""
            is_recursive = query.get("recursive", ["false"])[0].lower() in ("true", "1")
            entries: dict[str, Any] = {}
            for path in sorted(p for p in files if p.startswith(prefix)):
                parts = path.removeprefix(prefix).split("/")
                for depth in range(1, len(parts)):
                    directory = prefix + "/".join(parts[:depth])
                    entries[directory] = {
                        "type": "directory",
                        "path": directory,
                        "oid": "0" * 40,
                        "size": 0,
                    }
                    if not is_recursive:
                        break
                if is_recursive or len(parts) == 1:
                    entries[path] = _entry(path, files[path])
            if folder and not entries:
                self._fail(404, "EntryNotFound")
                return
            self._json(list(entries.values()))

    def _paths_info(self, body: bytes, query: Any, kind: str, name: str, revision: str) -> None:
        if commit_of_name := self._commit(kind, name, revision):
            files = commit_of_name[0].commits[commit_of_name[1]]
            if body.startswith(b"{"):
                paths = json.loads(body)["paths"]
            else:
                paths = parse_qs(body.decode())["paths"]
            entries = [_entry(path, files[path]) for path in paths if path in files]
            entries += [
                {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
                for path in paths
                if any(file.startswith(f"{path}/") for file in files)
            ]
            self._json(entries)

    def _resolve(
        self, body: bytes, query: Any, name: str, revision: str, file: str, kind: str | None
    ) -> None:
        commit_of_name = self._commit(kind or "models", name, revision)
        if commit_of_name is None:
            return
        repository, sha = commit_of_name
        if repository.is_gated and not self._has_token():
            self._fail(403 if "Authorization" in self.headers else 401, "GatedRepo")
            return
        content = repository.commits[sha].get(file)
        headers = {"X-Repo-Commit": sha}
        if content is None:
            self._bytes(b"", headers | {"X-Error-Code": "EntryNotFound"}, 404)
        elif file.endswith(LFS_SUFFIXES):
            self.server.uploads[sha256(content)] = content
            linked = {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
            location = f"{self.server.storage_url}/lfs/{sha256(content)}/{file}"
            self._bytes(b"", headers | linked | {"Location": location}, 302)
        else:
            sent = self.server.replaced.get(file, content)
            self._bytes(sent, headers | {"ETag": f'"{git_hash(content)}"'})

    def _lfs_file(self, body: bytes, query: Any, oid: str, path: str) -> None:
        content = self.server.replaced.get(path, self.server.uploads[oid])
        start, stop, status, headers = 0, len(content), 200, {"Accept-Ranges": "bytes"}
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, stop = int(match[1]), min(int(match[2] or stop) + 1, stop)
            status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{len(content)}"
        if not self.server.cut_after or self.command == "HEAD":
            self._bytes(content[start:stop], headers, status)
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(stop - start)}.items():
            self.send_header(name, value)
        self.end_headers()
        sent = content[start : min(stop, start + self.server.cut_after.pop(0))]
        self.server.sent_bytes += len(sent)
        self.wfile.write(sent)
        self.close_connection = True

    def _create(self, body: bytes, query: Any) -> None:
        if not self._has_token():
            self._fail(401, message="Invalid credentials in Authorization header")
            return
        settings = json.loads(body)
        name = f"{settings['organization']}/{settings['name']}"
        kind = settings.get("type", "model")
        is_private = settings.get("visibility") == "private" or settings.get("private") is True
        if f"{kind}s/{name}" in self.server.repositories:
            self._json({"url": f"{self.server.url}/{name}"}, 409)
            return
        repository = self.server.repositories[f"{kind}s/{name}"] = Repository(is_private=is_private)
        repository.commit({".gitattributes": b""})
        self._json({"url": f"{self.server.url}/{name}"})

    def _validate(self, body: bytes, query: Any) -> None:
        self._json({"errors": [], "warnings": []})

    def _preupload(self, body: bytes, query: Any, kind: str, name: str, revision: str) -> None:
        if not self._has_token():
            self._fail(403, message="no permission")
            return
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(LFS_SUFFIXES) else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self._json({"files": modes})

    def _lfs_batch(self, body: bytes, query: Any, name: str) -> None:
        objects = [
            {
                **item,
                "actions": {
                    "upload": {"href": f"{self.server.url}/upload/{item['oid']}", "header": {}}
                },
            }
            for item in json.loads(body)["objects"]
        ]
        self._json({"transfer": "basic", "objects": objects})

    def _upload(self, body: bytes, query: Any, oid: str) -> None:
        assert sha256(body) == oid
        self.server.uploads[oid] = body
        self._json({})

    def _push(self, body: bytes, query: Any, kind: str, name: str, revision: str) -> None:
        if commit_of_name := self._commit(kind, name, revision):
            repository, sha = commit_of_name
            files = dict(repository.commits[sha])
            for line in body.splitlines():
                operation = json.loads(line)
                value = operation["value"]
                if operation["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif operation["key"] == "lfsFile":
                    files[value["path"]] = self.server.uploads[value["oid"]]
            commit = repository.commit(files, revision)
            self._json(
                {"commitUrl": f"{self.server.url}/{name}/commit/{commit}", "commitOid": commit}
            )


def _entry(path: str, content: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "file",
        "path": path,
        "size": len(content),
        "oid": git_hash(content),
    }
    if path.endswith(LFS_SUFFIXES):
        entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
    return entry


_REPOSITORY = r"/api/(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"
_ROUTES: list[tuple[str, Callable[..., None]]] = [
    (r"/api/repos/create", _Handler._create),
    (r"/api/validate-yaml", _Handler._validate),
    (rf"{_REPOSITORY}/preupload/(?P<revision>[^/]+)", _Handler._preupload),
    (rf"{_REPOSITORY}/commit/(?P<revision>[^/]+)", _Handler._push),
    (rf"{_REPOSITORY}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?", _Handler._tree),
    (rf"{_REPOSITORY}/paths-info/(?P<revision>[^/]+)", _Handler._paths_info),
    (rf"{_REPOSITORY}/revision/(?P<revision>[^/]+)", _Handler._info),
    (_REPOSITORY, _Handler._info),
    (r"/(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch", _Handler._lfs_batch),
    (r"/upload/(?P<oid>[0-9a-f]+)", _Handler._upload),
    (r"/lfs/(?P<oid>[0-9a-f]+)/(?P<path>.+)", _Handler._lfs_file),
    (
        r"/(?:(?P<kind>datasets)/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)",
        _Handler._resolve,
    ),
]
