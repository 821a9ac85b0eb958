"""An output file that a later run can continue."""

import io
import json
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TextIO

from bertwright.core.errors import UserError
from bertwright.core.files.atomic import write_text
from bertwright.core.files.checks import require_writable
from bertwright.core.files.destination import is_stream, open_stream, resolve_output
from bertwright.core.files.disk import explain_full_disk, output_lock
from bertwright.core.files.json_files import read_results
from bertwright.core.operating_system import sync_file, sync_folder


class ResumableFile:
    """A file of lines with the suffix ``.part`` until it is complete.

    ``.part.json`` stores the ``provenance``; a run that resumes the file must have the same one.
    Devices and pipes are written to directly.
    """

    def __init__(self, path: Path, provenance: Mapping[str, str]) -> None:
        self._path = path
        self._target = path if is_stream(path) else resolve_output(path)
        self._provenance = dict(provenance)
        self.partial_path = self._target.with_name(f"{self._target.name}.part")
        self._provenance_path = self._target.with_name(f"{self._target.name}.part.json")

    @contextmanager
    def open(self, resume: bool) -> Generator[TextIO]:
        """Yield the file to append lines to.

        A UserError in the block removes a new file; after any other error the partial file stays.

        Errors: UserError if a partial file exists without ``resume``, if there is nothing to
        resume, if the provenance differs, or if another process writes to the file.
        """
        require_writable(self._path)
        with explain_full_disk(self._path), ExitStack() as stack:
            if is_stream(self._path):
                if resume:
                    raise UserError(f"--resume continues a file, and {self._path} is not a file")
                raw = stack.enter_context(open_stream(self._path))
                yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8"))
                return
            if resume and self._target.exists():
                self._provenance_path.unlink(missing_ok=True)  # left by a run killed at the end
                raise UserError(f"{self._path} is complete: there is nothing to resume")
            appended = resume and self.partial_path.exists()
            lines = stack.enter_context(self._open_partial(appended))
            try:
                yield lines
                lines.flush()
            except UserError:
                if not appended:
                    self._remove()
                raise
            self._finish()

    @contextmanager
    def _open_partial(self, appended: bool) -> Generator[TextIO]:
        """Open the partial file: a new one, or one to append to after its last whole line."""
        if not appended:
            self._create_partial()
        with (
            output_lock(self.partial_path),
            open(self.partial_path, "a", encoding="utf-8") as opened,
        ):
            if appended:
                size = _complete_lines_size(self.partial_path)
                if size:
                    self._require_same_provenance()
                opened.truncate(size)
            try:
                write_text(self._provenance_path, json.dumps(self._provenance, indent=1) + "\n")
            except (OSError, UserError):
                if not appended:
                    self._remove()
                raise
            yield opened

    def _create_partial(self) -> None:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.partial_path.touch(exist_ok=False)
        except FileExistsError:
            with output_lock(self.partial_path):
                raise UserError(
                    f"{self.partial_path} was left by an interrupted run: add --resume, or remove "
                    f"it"
                ) from None

    def _require_same_provenance(self) -> None:
        before = read_results(self._provenance_path)
        for name, value in self._provenance.items():
            if before.get(name) != value:
                raise UserError(
                    f"{self.partial_path} was started with another {name}: use the same one, or "
                    f"remove the file to start again"
                )

    def _finish(self) -> None:
        if self._target.exists():
            self.partial_path.chmod(self._target.stat().st_mode & 0o777)
        sync_file(self.partial_path)
        self.partial_path.replace(self._target)
        self._provenance_path.unlink(missing_ok=True)
        sync_folder(self._target.parent)

    def _remove(self) -> None:
        self.partial_path.unlink(missing_ok=True)
        self._provenance_path.unlink(missing_ok=True)


def _complete_lines_size(path: Path) -> int:
    """Return the size of a file's complete lines in bytes; the last line may be partial."""
    if not os.stat(path).st_size:
        return 0
    with open(path, "rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return content.rfind(b"\n") + 1
