"""The server in a process of its own, as it is started from a shell."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from bertwright.errors import UserError


class ServerProcess:
    """``bertwright serve FOLDER OPTION...`` at any free port; ``address`` is where."""

    def __init__(self, folder: Path, *options: str) -> None:
        words = ["serve", str(folder), "--port", "0", *options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bertwright", *words], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        begin = self._process.stderr.readline()
        self._said = [begin]
        # Whoever is not listened to does not go on: a pipe that is full stops the server.
        self._listening = Thread(target=self._said.extend, args=(self._process.stderr,))
        self._listening.start()
        if not begin.startswith("serving"):
            self._end()
            raise UserError(f"the server did not start: {begin.strip()}")
        self.address = begin.split()[-1]

    def memory(self) -> float:
        """The megabytes that it holds."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def ask_to_stop(self) -> None:
        """Send the signal."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> tuple[int, str]:
        """Its exit code, and all that it said; TimeoutExpired where it does not end."""
        code = self._process.wait(seconds)
        self._listening.join()
        return code, "".join(self._said)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._listening.join()
        self._process.__exit__(None, None, None)
