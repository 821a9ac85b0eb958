"""What ends a verb before its time: errors a user can act on, and signals."""

import signal
from pathlib import Path

MAX_CHARACTERS = 1_000
"""Of a message: it may repeat what a stranger wrote."""


class UserError(Exception):
    """Something the user can mend.

    The message is one sentence that names the file, the line or the key, and says what to do; it
    stands on one line, whatever it repeats. The command line prints it on stderr and exits with
    code 2; nothing half-written is left.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_on_one_line(message))


def _on_one_line(message: str) -> str:
    """Return a message without line ends and control characters, its middle left out where it is
    long: it begins with what is wrong, and ends with what to do."""
    if len(message) > MAX_CHARACTERS:
        half = MAX_CHARACTERS // 2
        message = f"{message[:half]} ... {message[-half:]}"
    if message.isprintable():
        return message
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else ascii(letter)[1:-1]
        for letter in message
    )


class MissingExtra(UserError):
    """A library that belongs to an optional extra is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: run pip install 'bertwright[{extra}]'")
        self._made_of = (library, extra)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return MissingExtra, self._made_of  # as it comes from another process


class TokenizerFailure(UserError):
    """A tokenizer that a user brought cannot read a text."""


class Interrupted(Exception):
    """Training stopped because it was asked to, after a whole step.

    ``exit_code`` is what a shell expects of a process that a signal ended: 130 or 143.
    """

    def __init__(self, signal_number: int, step: int, checkpoint: Path | None) -> None:
        kept = f"; go on from {checkpoint} by the same command with --resume" if checkpoint else ""
        super().__init__(f"stopped by {signal.Signals(signal_number).name} after step {step}{kept}")
        self.exit_code = 128 + signal_number
        self._made_of = (signal_number, step, checkpoint)

    def __reduce__(self) -> tuple[type, tuple[int, int, Path | None]]:
        return Interrupted, self._made_of  # as it comes from another process
