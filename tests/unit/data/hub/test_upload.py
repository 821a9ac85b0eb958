"""A pushed folder is one commit, and is loaded again as it is."""

from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.hub.download import local_folder
from bertwright.data.hub.reference import HubReference
from bertwright.data.hub.upload import push_folder, require_push_target
from hub_server import TOKEN, Hub

ME = HubReference("me/model")

# The client uploads large files in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with large and small files."""
    folder = tmp_path / "export"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 64)
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "README.md").write_text("---\nlibrary_name: transformers\n---\n# A card\n")
    return folder


@pytest.fixture
def token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may write."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)


@pytest.mark.usefixtures("token")
def test_a_pushed_folder_is_loaded_again(hub: Hub, folder: Path) -> None:
    address = push_folder(folder, require_push_target("me/model"))
    repository = hub.repositories["models/me/model"]
    assert address == f"{hub.url}/me/model/commit/{repository.refs['main']}"
    assert len(repository.commits) == 2, "one commit besides that of the empty repository"
    loaded = local_folder("me/model")
    for file in (f for f in folder.rglob("*") if f.is_file()):
        assert (loaded / file.relative_to(folder)).read_bytes() == file.read_bytes()


@pytest.mark.usefixtures("token")
def test_a_second_push_adds_a_commit(hub: Hub, folder: Path) -> None:
    push_folder(folder, ME)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    push_folder(folder, ME)
    assert len(hub.repositories["models/me/model"].commits) == 3
    assert (local_folder("me/model") / "README.md").read_text().startswith("---\nlicense")


@pytest.mark.usefixtures("token")
def test_private_is_never_pushed_to_a_public_repository(hub: Hub, folder: Path) -> None:
    push_folder(folder, HubReference("me/secret"), private=True)
    assert hub.repositories["models/me/secret"].is_private
    public = hub.add("me/model", {"a.txt": "a"})
    with pytest.raises(UserError, match="me/model exists and is public, so nothing was pushed"):
        push_folder(folder, ME, private=True)
    assert len(public.commits) == 1


def test_a_push_needs_a_token_a_name_and_a_network(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=f"no token for {hub.url}: run 'hf auth login'"):
        require_push_target("me/model")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("model", "me/model@v1", "/me/model"):
        with pytest.raises(UserError, match="name a repository on the Hub, such as owner/name"):
            require_push_target(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        require_push_target("me/model")


def test_a_token_without_permission_is_named(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(UserError, match=r"refuses access \(401\): run 'hf auth login'"):
        push_folder(folder, ME)
    assert not hub.repositories
