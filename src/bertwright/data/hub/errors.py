"""Errors of the Hub's client, each as one sentence with its remedy."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bertwright.core.errors import MissingExtra, UserError
from bertwright.core.files import explain_full_disk
from bertwright.core.messages import first_line
from bertwright.core.optional_dependencies import require_library
from bertwright.data.hub.reference import HubReference

HUB_EXTRA = "huggingface"

_LOGIN = "'hf auth login'"


def require_hub_client(name: str) -> None:
    """Raise UserError that mentions ``name`` if huggingface_hub is not installed."""
    try:
        require_library("huggingface_hub", HUB_EXTRA)
    except MissingExtra as error:
        raise UserError(
            f"there is no folder {name}, and to load it from the Hub: {error}"
        ) from None


@contextmanager
def explain_hub_errors(reference: HubReference) -> Generator[None]:
    """Raise UserError instead of the client's errors about a repository."""
    from huggingface_hub import constants, errors

    try:
        with explain_full_disk(Path(constants.HF_HUB_CACHE)):
            yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"{reference} is gated: accept its terms at {reference.page}, then run {_LOGIN}"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(
            f"{reference.repository} has no revision {reference.revision or 'main'!r}: choose a "
            f"branch, tag or commit listed at {reference.page}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        missing = {"model": "neither a folder nor a model", "dataset": "no data set"}
        raise UserError(
            f"{reference}: there is {missing[reference.kind]} of that name at "
            f"{constants.ENDPOINT}: check the spelling, or run {_LOGIN} if it is private"
        ) from error
    except errors.HFValidationError as error:
        raise UserError(f"{reference} is not a name on the Hub: {first_line(error)}") from error
    except errors.HfHubHTTPError as error:
        raise UserError(_status_message(reference, error.response.status_code)) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError) as error:
        raise UserError(_unreachable_message(reference, error)) from error
    except errors.HTTPError as error:  # pyright: ignore[reportPrivateImportUsage]
        raise UserError(
            f"{reference}: the connection to {constants.ENDPOINT} broke ({first_line(error)}): run "
            f"again; files that are complete are not downloaded again"
        ) from error
    except (OSError, RuntimeError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        # The client states a wrong size, and an answer without the Hub's headers, in words only.
        reason = "; ".join(first_line(cause).rstrip(".") for cause in _causes(error))
        raise UserError(f"{reference}: {reason}: run again") from error


def _status_message(reference: HubReference, status: int) -> str:
    from huggingface_hub import constants

    if status in (401, 403):
        return (
            f"{reference}: {constants.ENDPOINT} refuses access ({status}): run {_LOGIN} with a "
            f"token that has the permission"
        )
    return f"{reference}: {constants.ENDPOINT} answers {status}: try again later"


def _unreachable_message(reference: HubReference, error: BaseException) -> str:
    from huggingface_hub import constants, errors

    cache = constants.HF_HUB_CACHE
    state = {"model": f"neither a folder nor in the cache {cache}", "dataset": "not in the cache"}
    causes = _causes(error)
    if constants.HF_HUB_OFFLINE:
        remedy = "HF_HUB_OFFLINE is set: unset it to download it once"
    elif any(isinstance(cause, errors.FileMetadataError) for cause in causes):
        remedy = f"{constants.ENDPOINT} does not answer as a Hub: check HF_ENDPOINT and the proxy"
    else:
        reason = first_line(causes[-1])
        remedy = f"{constants.ENDPOINT} cannot be reached ({reason}): check the network"
    return f"{reference} is {state[reference.kind]}, and {remedy}"


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and the errors that caused it."""
    causes = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    return causes
