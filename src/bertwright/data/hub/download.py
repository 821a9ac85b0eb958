"""Model folders by path or by name on the Hub."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from bertwright.core.cache_folder import read_cache, update_cache
from bertwright.core.errors import UserError
from bertwright.core.messages import print_once
from bertwright.data.hub.errors import explain_hub_errors, require_hub_client
from bertwright.data.hub.reference import HubReference
from bertwright.data.hub.verification import verify_snapshot

WEIGHTS = "*.safetensors"

DOWNLOADED_FILES = (
    "model.safetensors",
    "model-*.safetensors",
    "baselines.safetensors",
    "*.json",
    "*.txt",
    "*.yaml",
    "*.md",
)
"""Patterns of the files to download: weights and baselines, settings, vocabularies and texts."""

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Suffixes of weights that can run code when loaded, and are never downloaded."""

NAMED_FOLDERS = "named-folders.json"
"""Folders whose path reads like a name on the Hub, and which have been used."""


def local_folder(model: str | Path) -> Path:
    """Return the folder of a model, given its path or its name on the Hub.

    ``owner/name[@revision]`` is downloaded into the Hub's cache, unless it is the path of an
    existing file or folder. Other paths are returned as they are.

    Errors: UserError if the model cannot be downloaded, and for weights that are pickles only.
    """
    path = Path(model)
    reference = HubReference.parse(model)
    if reference is None:
        return path
    if path.exists():
        if path.is_dir() and reference.revision is None:
            _say_that_the_folder_wins(path)
        return path
    require_hub_client(str(model))
    return _download(reference)


def _say_that_the_folder_wins(folder: Path) -> None:
    """Say, the first time that a folder is used, that it is not looked for on the Hub."""
    key = str(folder.resolve())
    if key not in read_cache(NAMED_FOLDERS):
        update_cache(NAMED_FOLDERS, {key: True})
        print_once(
            f"{folder} is the local folder of that name (for the model on the Hub, write "
            f"{folder}@main)"
        )


def _download(reference: HubReference) -> Path:
    from huggingface_hub import snapshot_download

    with explain_hub_errors(reference):
        snapshot = snapshot_download(
            reference.repository,
            revision=reference.revision,
            allow_patterns=list(DOWNLOADED_FILES),
            tqdm_class=_progress_bar_class(),
        )
    folder = Path(snapshot)
    verify_snapshot(folder, reference)
    if not any(folder.glob(WEIGHTS)):
        _refuse_pickles(reference, folder)
    return folder


def _refuse_pickles(reference: HubReference, folder: Path) -> None:
    """Raise UserError if a repository without safetensors has pickles."""
    from huggingface_hub import HfApi

    names: list[str] = []
    with suppress(UserError), explain_hub_errors(reference):  # the folder may be used offline
        names = HfApi().list_repo_files(reference.repository, revision=folder.name)
    pickles = sorted(name for name in names if name.endswith(PICKLES))
    if pickles:
        raise UserError(
            f"{reference} has no safetensors, only {pickles[0]}, which can run code when loaded: "
            f"convert it at https://huggingface.co/spaces/safetensors/convert, then load the pull "
            f"request with {reference.repository}@refs/pr/NUMBER"
        )


def _progress_bar_class() -> type[Any]:
    """Return a progress bar on stderr of the bytes received, shown only if there are any."""
    from huggingface_hub.utils import tqdm

    class DownloadProgress(tqdm):
        """A progress bar that is not shown for files, nor for copies of received bytes."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            is_count = kwargs.get("unit") != "B"
            if is_count or str(kwargs.get("desc")).startswith("Reconstructing"):
                kwargs["disable"] = True
            super().__init__(*args, **kwargs)

        def display(self, *args: Any, **kwargs: Any) -> Any:
            if self.total:
                return super().display(*args, **kwargs)
            return None

        def close(self) -> None:
            self.leave = bool(self.total)
            super().close()

    return DownloadProgress
