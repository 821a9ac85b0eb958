"""Warnings of a run, which outlive an interruption."""

from collections.abc import Callable

from bertwright.training.clock import DecisionLog

PREFIX = "warning: "
"""Start of the name of a logged warning."""


class RunWarnings:
    """The warnings of a run, one for each subject, kept in its decision log."""

    def __init__(self, decision_log: DecisionLog, log: Callable[[str], None]) -> None:
        self._decision_log = decision_log
        self._log = log

    @property
    def messages(self) -> tuple[str, ...]:
        """The warnings so far, in order."""
        return tuple(self._by_subject().values())

    def add(self, subject: str, message: str) -> None:
        """Print and keep a warning, unless there is one about this subject."""
        if subject not in self._by_subject():
            self._decision_log.revise(PREFIX + subject, message)
            self._log(f"warning: {message}")

    def _by_subject(self) -> dict[str, str]:
        return {
            entry["decision"].removeprefix(PREFIX): entry["value"]
            for entry in self._decision_log.entries
            if entry.get("decision", "").startswith(PREFIX)
        }
