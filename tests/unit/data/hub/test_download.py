"""Models are downloaded whole, verified and once; every failure is one sentence."""

import resource
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.core.messages import print_once
from bertwright.data.hub.download import local_folder
from hub_server import TOKEN, Hub

WEIGHTS = bytes(range(256)) * 256
FILES: dict[str, bytes | str] = {
    "config.json": "{}",
    "vocab.txt": "[PAD]\n",
    "README.md": "A card.",
    "1_Pooling/config.json": "{}",
    "model.safetensors": WEIGHTS,
}
UNWANTED: dict[str, bytes | str] = {
    "pytorch_model.bin": b"a pickle",
    "tf_model.h5": b"weights",
    "modeling.py": "import os",
    "onnx/model.onnx": b"a graph",
    "fp16/model.safetensors": b"other weights",
}


def content(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def expected(files: dict[str, bytes | str]) -> dict[str, bytes]:
    return {path: c.encode() if isinstance(c, str) else c for path, c in files.items()}


def test_only_weights_without_code_settings_and_texts_are_downloaded(hub: Hub) -> None:
    hub.add("me/model", FILES | UNWANTED)
    assert content(local_folder("me/model")) == expected(FILES)
    for path in UNWANTED:
        assert not hub.requested(path)


def test_files_in_the_cache_are_not_downloaded_again(hub: Hub) -> None:
    repository = hub.add("me/model", FILES)
    first = local_folder("me/model")
    hub.requests.clear()
    assert local_folder("me/model") == first
    assert not hub.requested("resolve") + hub.requested("lfs")
    repository.commit(expected(FILES) | {"vocab.txt": b"[MASK]\n"})
    second = local_folder(Path("me/model"))
    assert (second / "vocab.txt").read_text() == "[MASK]\n"
    assert not hub.requested("lfs"), "the weights have not changed"


def test_a_revision_is_a_branch_tag_or_commit(hub: Hub) -> None:
    repository = hub.add("me/model", FILES)
    commit = repository.commit(expected(FILES) | {"vocab.txt": b"new"}, "refs/pr/1")
    for revision in ("refs/pr/1", commit):
        assert (local_folder(f"me/model@{revision}") / "vocab.txt").read_text() == "new"
    assert (local_folder("me/model@main") / "vocab.txt").read_text() == "[PAD]\n"


def test_a_cut_download_resumes_to_the_same_bytes(hub: Hub) -> None:
    hub.add("me/model", FILES)
    hub.cut_after = [10_000, 20_000]
    assert content(local_folder("me/model")) == expected(FILES)
    ranges = [request.rpartition(" ")[2] for request in hub.requested("lfs")]
    assert ranges[1:] == ["bytes=8192-", "bytes=24576-"], "whole chunks are kept"


@pytest.mark.parametrize("path", ["model.safetensors", "vocab.txt"])
def test_a_file_with_a_wrong_hash_is_refused_and_downloaded_again(hub: Hub, path: str) -> None:
    hub.add("me/model", FILES)
    size = len(expected(FILES)[path])
    hub.replaced[path] = b"x" * size
    for _ in range(2):
        with pytest.raises(UserError, match=f"me/model: {path} differs from the hash"):
            local_folder("me/model")
    hub.replaced.clear()
    assert content(local_folder("me/model")) == expected(FILES)


def test_a_file_with_a_wrong_size_is_refused_and_downloaded_again(hub: Hub) -> None:
    hub.add("me/model", FILES)
    hub.replaced["model.safetensors"] = WEIGHTS[:-5]
    with pytest.raises(UserError, match=r"me/model: .*should be of size .*: run again"):
        local_folder("me/model")
    hub.replaced.clear()
    assert content(local_folder("me/model")) == expected(FILES)


def test_a_file_that_changes_in_the_cache_is_refused(hub: Hub) -> None:
    hub.add("me/model", FILES)
    weights = local_folder("me/model") / "model.safetensors"
    weights.resolve().write_bytes(WEIGHTS[::-1])
    with pytest.raises(UserError, match="differs from the hash"):
        local_folder("me/model")
    assert content(local_folder("me/model")) == expected(FILES)


def test_offline_only_the_cache_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("me/model", FILES)
    folder = local_folder("me/model")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert local_folder("me/model") == folder
    with pytest.raises(UserError, match=r"neither a folder nor in the cache .*HF_HUB_OFFLINE"):
        local_folder("me/other")
    assert not hub.requests


def test_without_a_network_the_cache_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("me/model", FILES)
    folder = local_folder("me/model")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert local_folder("me/model") == folder
    with pytest.raises(UserError, match=r"http://127.0.0.1:9 cannot be reached \(.*check the net"):
        local_folder("me/other")


def test_a_gated_model_needs_a_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("me/gated", FILES).is_gated = True
    remedy = f"accept its terms at {hub.url}/me/gated, then run 'hf auth login'"
    with pytest.raises(UserError, match=f"me/gated is gated: {remedy}"):
        local_folder("me/gated")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(UserError, match=f"me/gated is gated: {remedy}"):
        local_folder("me/gated")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert content(local_folder("me/gated")) == expected(FILES)


def test_a_missing_model_or_revision_is_named(hub: Hub) -> None:
    hub.add("me/model", FILES)
    with pytest.raises(UserError, match="me/none: there is neither a folder nor a model of that"):
        local_folder("me/none")
    with pytest.raises(UserError, match="me/model has no revision 'v2': choose a branch, tag"):
        local_folder("me/model@v2")


def test_pickles_are_refused_with_a_remedy(hub: Hub) -> None:
    hub.add("me/pickle", {"config.json": "{}", "pytorch_model.bin": b"a pickle"})
    with pytest.raises(UserError, match=r"only pytorch_model.bin, which can run code .*convert"):
        local_folder("me/pickle")
    assert not hub.requested("resolve/main/pytorch_model.bin")
    hub.add("me/tokenizer", {"tokenizer.json": "{}"})
    assert content(local_folder("me/tokenizer")) == {"tokenizer.json": b"{}"}


@contextmanager
def file_size_limit(num_bytes: int) -> Generator[None]:
    """Let writes to larger files fail, as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))


def test_a_full_disk_leaves_nothing_that_is_used(hub: Hub) -> None:
    hub.add("me/model", FILES)
    with file_size_limit(30_000), pytest.raises(UserError, match="free some space and run again"):
        local_folder("me/model")
    assert content(local_folder("me/model")) == expected(FILES)


def test_a_local_folder_of_that_name_wins_and_is_mentioned(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_once.cache_clear()
    hub.add("me/model", FILES)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me" / "model").mkdir(parents=True)
    assert local_folder("me/model") == Path("me/model")
    assert local_folder("me/model") == Path("me/model")
    line = "me/model is the local folder of that name (for the model on the Hub, write "
    assert capsys.readouterr().err == f"{line}me/model@main)\n"
    assert not hub.requests
    assert content(local_folder("me/model@main")) == expected(FILES)
    shutil.rmtree(tmp_path / "me")
    assert content(local_folder("me/model")) == expected(FILES)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertwright.core.optional_dependencies.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"no folder me/model.*pip install 'bertwright\[hugging"):
        local_folder("me/model")
    assert local_folder("model") == Path("model")
