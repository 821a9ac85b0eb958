"""Upload folders to the Hub."""

from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.core.optional_dependencies import require_library
from bertwright.data.hub.errors import HUB_EXTRA, explain_hub_errors
from bertwright.data.hub.reference import HubReference


def require_push_target(name: str) -> HubReference:
    """Return the repository to push to.

    Errors: UserError for another name than ``owner/name``, without a token, and offline;
    MissingExtra without huggingface_hub.
    """
    require_library("huggingface_hub", HUB_EXTRA)
    from huggingface_hub import constants, get_token

    target = HubReference.parse(name)
    if target is None or target.revision is not None:
        raise UserError(f"--push {name}: name a repository on the Hub, such as owner/name")
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"--push {name}: HF_HUB_OFFLINE is set: unset it to push")
    if get_token() is None:
        raise UserError(
            f"--push {name}: no token for {constants.ENDPOINT}: run 'hf auth login' with a token "
            f"that may write"
        )
    return target


def push_folder(folder: Path, target: HubReference, private: bool = False) -> str:
    """Upload all files of a folder in one commit, and return its address.

    The repository is created if it is missing. Files that are already there and not in the folder
    are kept.

    Errors: UserError if the upload fails, and for a public repository if ``private`` is required.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api, name = HfApi(), target.repository
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    additions = [
        CommitOperationAdd(path_in_repo=str(file.relative_to(folder)), path_or_fileobj=file)
        for file in files
    ]
    with explain_hub_errors(target):
        api.create_repo(name, private=private or None, exist_ok=True)
        if private and not api.model_info(name).private:
            raise UserError(
                f"--private: {target.page} exists and is public, so nothing was pushed: make it "
                f"private there, or choose another name"
            )
        commit = api.create_commit(name, additions, commit_message="Export from bertwright")
    return str(commit.commit_url)
