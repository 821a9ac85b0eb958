"""Keys of an API: from a file, or from the environment, never from the command line, which other
users of the machine can read."""

import os
from pathlib import Path

from bertwright.errors import UserError
from bertwright.files import read_text, require_file

VARIABLE = "BERTWRIGHT_API_KEY"

SHORTEST = 16
"""Characters, so that nobody guesses them."""


def read_keys(file: Path | None) -> frozenset[str]:
    """The keys of a file, one on each line, or that of the environment; none where there is
    neither.

    Errors: UserError for a file without keys, and for a key that can be guessed or sent by nobody.
    """
    if file is not None:
        require_file(file)
        where, keys = str(file), read_text(file).split()
        if not keys:
            raise UserError(f"{file} holds no key: write one on each line")
    else:
        where, keys = VARIABLE, os.environ.get(VARIABLE, "").split()
    for number, key in enumerate(keys, start=1):
        if len(key) < SHORTEST or not key.isascii():
            raise UserError(
                f"{where}: key {number} must have {SHORTEST} letters and digits or more: make one "
                f"with python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return frozenset(keys)
