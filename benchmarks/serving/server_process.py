"""The server in its own process, started as from a shell."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from bertwright.core.errors import UserError


class ServerProcess:
    """A process of ``bertwright serve FOLDER OPTION...`` on a free port, at ``address``."""

    def __init__(self, folder: Path, *options: str) -> None:
        words = ["serve", str(folder), "--port", "0", *options]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bertwright", *words], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        first_line = self._process.stderr.readline()
        self._stderr_lines = [first_line]
        # A full pipe would block the server.
        self._stderr_reader = Thread(target=self._stderr_lines.extend, args=(self._process.stderr,))
        self._stderr_reader.start()
        if not first_line.startswith("serving"):
            self._kill()
            raise UserError(f"the server did not start: {first_line.strip()}")
        self.address = first_line.split()[-1]

    def memory_megabytes(self) -> float:
        """Return the resident memory in MB."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> tuple[int, str]:
        """Return the exit code and stderr. Errors: TimeoutExpired."""
        code = self._process.wait(seconds)
        self._stderr_reader.join()
        return code, "".join(self._stderr_lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._stderr_reader.join()
        self._process.__exit__(None, None, None)
