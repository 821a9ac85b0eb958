"""An output that grows line by line, and that a later run goes on with."""

import io
import json
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TextIO

from bertwright.errors import UserError
from bertwright.files.atomic import write_text
from bertwright.files.checks import require_writable
from bertwright.files.destination import destination, is_stream, open_stream
from bertwright.files.disk import full_disk_named, held_alone, sync_file, sync_folder
from bertwright.files.reading import read_findings


class ResumableFile:
    """A file of lines that has ``.part`` behind its name until it is whole.

    Beside the part, ``.part.json`` states what decides its lines (``origin``): a run that goes on
    with it must state the same. A device or a pipe is written to as it is.
    """

    def __init__(self, path: Path, origin: Mapping[str, str]) -> None:
        self._path = path
        self._target = path if is_stream(path) else destination(path)
        self._origin = dict(origin)
        self.part = self._target.with_name(f"{self._target.name}.part")
        self._about = self._target.with_name(f"{self._target.name}.part.json")

    @contextmanager
    def opened(self, resume: bool) -> Generator[TextIO]:
        """Yield the file to append lines to. A UserError in the block removes a new file; after
        any other end but a good one the part stays, to go on with.

        Errors: UserError where there is a part and it is not to be resumed, or the other way about;
        where the part has another origin, or another process writes to it.
        """
        require_writable(self._path)
        with full_disk_named(self._path), ExitStack() as stack:
            if is_stream(self._path):
                if resume:
                    raise UserError(f"--resume goes on with a file, and {self._path} is none")
                raw = stack.enter_context(open_stream(self._path))
                yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8"))
                return
            if resume and self._target.exists():
                self._about.unlink(missing_ok=True)  # a run was killed at its very end
                raise UserError(f"{self._path} is whole: there is nothing to go on with")
            appended = resume and self.part.exists()
            lines = stack.enter_context(self._appending() if appended else self._new())
            try:
                yield lines
                lines.flush()
            except UserError:
                if not appended:
                    self._remove()
                raise
            self._finish()

    @contextmanager
    def _new(self) -> Generator[TextIO]:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.part.touch(exist_ok=False)
        except FileExistsError:
            with held_alone(self.part):
                raise UserError(
                    f"{self.part} was left by an interrupted run: say --resume, or remove it"
                ) from None
        with held_alone(self.part), open(self.part, "a", encoding="utf-8") as opened:
            write_text(self._about, json.dumps(self._origin, indent=1) + "\n")
            yield opened

    @contextmanager
    def _appending(self) -> Generator[TextIO]:
        with held_alone(self.part), open(self.part, "a", encoding="utf-8") as opened:
            size = _whole_lines(self.part)
            if size:
                self._require_same_origin()
            opened.truncate(size)
            write_text(self._about, json.dumps(self._origin, indent=1) + "\n")
            yield opened

    def _require_same_origin(self) -> None:
        before = read_findings(self._about)
        for name, value in self._origin.items():
            if before.get(name) != value:
                raise UserError(
                    f"{self.part} was begun with another {name}: use the same again, or remove the "
                    f"file to begin anew"
                )

    def _finish(self) -> None:
        if self._target.exists():
            self.part.chmod(self._target.stat().st_mode & 0o777)
        sync_file(self.part)
        self.part.replace(self._target)
        self._about.unlink(missing_ok=True)
        sync_folder(self._target.parent)

    def _remove(self) -> None:
        self.part.unlink(missing_ok=True)
        self._about.unlink(missing_ok=True)


def _whole_lines(part: Path) -> int:
    """Return the bytes of the lines of a file that end; a last one may have been cut off."""
    if not os.stat(part).st_size:
        return 0
    with open(part, "rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return content.rfind(b"\n") + 1
