"""Exceptions that end a command early: errors that users can fix, and signals."""

import signal
from pathlib import Path

MAX_MESSAGE_LENGTH = 1_000
"""Maximum characters of an error message, which may repeat user input."""


class UserError(Exception):
    """An error that the user can fix.

    The message is one sentence on one line: it names the file, the line or the key, and the
    remedy. The command line prints it on stderr and exits with code 2, leaving no partial output.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_single_line(message))


def _single_line(message: str) -> str:
    """Return a message without control characters; the middle of a long message is removed."""
    if len(message) > MAX_MESSAGE_LENGTH:
        half = MAX_MESSAGE_LENGTH // 2
        message = f"{message[:half]} ... {message[-half:]}"
    if message.isprintable():
        return message
    return "".join(
        char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1]
        for char in message
    )


class MissingExtra(UserError):
    """A missing library of an optional extra."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"{library} is not installed: run pip install 'bertwright[{extra}]'")
        self._arguments = (library, extra)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return MissingExtra, self._arguments  # pickled between processes


class TokenizerError(UserError):
    """An error of a user's tokenizer that cannot encode a text."""


class TrainingInterrupted(Exception):
    """A training run stopped by a signal, after a complete step.

    ``exit_code`` is 130 (SIGINT) or 143 (SIGTERM). ``reason`` is the message without the advice to
    add ``--resume``, for commands that have no such option.
    """

    def __init__(self, signal_number: int, step: int, checkpoint: Path | None) -> None:
        resume = (
            f"; to continue from {checkpoint}, run the same command with --resume"
            if checkpoint
            else ""
        )
        name = signal.Signals(signal_number).name
        self.reason = f"stopped by {name} after step {step}"
        super().__init__(f"{self.reason}{resume}")
        self.exit_code = 128 + signal_number
        self._arguments = (signal_number, step, checkpoint)

    def __reduce__(self) -> tuple[type, tuple[int, int, Path | None]]:
        return TrainingInterrupted, self._arguments  # pickled between processes
