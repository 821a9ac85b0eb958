"""The limits and API keys of a server."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.core.files import read_text, require_file


@dataclass(frozen=True)
class ServingSettings:
    """The limits of a server.

    Attributes:
        max_texts: maximum number of texts per request.
        max_text_tokens: maximum number of tokens per text, special tokens included; the model's
            limit may be lower.
        max_body_bytes: maximum size of a request body.
        max_requests: maximum number of concurrent requests.
        max_queue_tokens: maximum number of waiting tokens per model; further requests are rejected.
        max_batch_delay_ms: how long an idle model waits for more texts to share a batch; less than
            the time to answer, or no request would be answered.
        request_timeout_seconds: time to receive a request, and again to answer it.
        api_keys: accepted keys; empty for no authentication.

    Errors: UserError for a delay that is too long.
    """

    max_texts: int = 512
    max_text_tokens: int = 8192
    max_body_bytes: int = 2 * 2**20
    max_requests: int = 512
    max_queue_tokens: int = 65_536
    max_batch_delay_ms: float = 2.0
    request_timeout_seconds: float = 30.0
    api_keys: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        """Check that a batch begins before its requests time out."""
        timeout_ms = 1000 * self.request_timeout_seconds
        if not self.max_batch_delay_ms < timeout_ms:
            raise UserError(
                f"a model would wait {self.max_batch_delay_ms:g} ms for more texts, but requests "
                f"time out after {timeout_ms:g} ms: lower --deadline-ms, or raise --timeout"
            )


API_KEY_VARIABLE = "BERTWRIGHT_API_KEY"

MIN_KEY_LENGTH = 16
"""Minimum number of characters of an API key, to prevent guessing."""


def read_api_keys(file: Path | None) -> frozenset[str]:
    """Read API keys from a file, one per line, or from the environment; empty without either.

    Errors: UserError for a file or variable without keys, which would leave the server open, and
    for keys that are short or not ASCII.
    """
    if file is not None:
        require_file(file)
        source, keys, remedy = str(file), read_text(file).split(), "write one per line"
    elif (value := os.environ.get(API_KEY_VARIABLE)) is not None:
        source, keys, remedy = API_KEY_VARIABLE, value.split(), "set it to a key, or unset it"
    else:
        return frozenset()
    if not keys:
        raise UserError(f"{source} holds no key: {remedy}")
    for number, key in enumerate(keys, start=1):
        if len(key) < MIN_KEY_LENGTH or not key.isascii():
            raise UserError(
                f"{source}: key {number} must have at least {MIN_KEY_LENGTH} ASCII characters: "
                f"create one with python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return frozenset(keys)
