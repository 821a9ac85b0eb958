"""Atomic writes, checks of paths before work starts, and reads with readable errors.

An output is written to a temporary folder next to its target and renamed when it is complete. The
temporary folder has a random name and is locked while its process lives. If the process is killed,
the next process that writes the same output removes the folder.
"""

from bertwright.core.files.atomic import atomic_file, atomic_folder, remove_unfinished, write_text
from bertwright.core.files.checks import (
    require_creatable,
    require_different_file,
    require_file,
    require_new_folder,
    require_writable,
    require_writable_folder,
)
from bertwright.core.files.destination import is_stream, open_stream
from bertwright.core.files.disk import explain_full_disk, output_lock
from bertwright.core.files.json_files import (
    content_hash,
    file_digests,
    loads_json,
    parse_json,
    read_json_lines,
    read_results,
    read_text,
)
from bertwright.core.files.resumable import ResumableFile
from bertwright.core.operating_system import SharedLock, file_lock, sync_folder

__all__ = [
    "ResumableFile",
    "SharedLock",
    "atomic_file",
    "atomic_folder",
    "content_hash",
    "explain_full_disk",
    "file_digests",
    "file_lock",
    "is_stream",
    "loads_json",
    "open_stream",
    "output_lock",
    "parse_json",
    "read_json_lines",
    "read_results",
    "read_text",
    "remove_unfinished",
    "require_creatable",
    "require_different_file",
    "require_file",
    "require_new_folder",
    "require_writable",
    "require_writable_folder",
    "sync_folder",
    "write_text",
]
