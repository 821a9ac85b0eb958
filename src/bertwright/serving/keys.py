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

    Errors: UserError for a file or a variable without keys, which would open the server to anybody,
    and for a key that can be guessed or sent by nobody.
    """
    if file is not None:
        require_file(file)
        where, keys, mend = str(file), read_text(file).split(), "write one on each line"
    elif (held := os.environ.get(VARIABLE)) is not None:
        where, keys, mend = VARIABLE, held.split(), "set it to one, or unset it"
    else:
        return frozenset()
    if not keys:
        raise UserError(f"{where} holds no key: {mend}")
    for number, key in enumerate(keys, start=1):
        if len(key) < SHORTEST or not key.isascii():
            raise UserError(
                f"{where}: key {number} must have {SHORTEST} letters and digits or more: make one "
                f"with python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return frozenset(keys)
