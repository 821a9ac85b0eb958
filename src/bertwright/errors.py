"""Errors a user can act on."""


class UserError(Exception):
    """Something the user can mend.

    The message is one sentence that names the file, the line or the key, and says what to do.
    The command line prints it on stderr and exits with code 2; nothing half-written is left.
    """


class MissingExtra(UserError):
    """A library that belongs to an optional extra is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: run pip install 'bertwright[{extra}]'")
        self._made_of = (library, extra)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return MissingExtra, self._made_of  # as it comes from another process
