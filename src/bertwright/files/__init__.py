"""Files and folders: written whole or not at all, checked before, read with sentences for errors.

An output is written beside its place and takes its name when it is whole. Its temporary folder has
a name that cannot be guessed, is locked as long as its process lives, and is removed by the next
process that writes the same output.
"""

from bertwright.files.atomic import atomic_file, atomic_folder, write_text
from bertwright.files.checks import (
    require_file,
    require_free,
    require_other,
    require_room,
    require_writable,
)
from bertwright.files.destination import is_stream, open_stream
from bertwright.files.disk import full_disk_named, held, held_alone, sync_folder
from bertwright.files.reading import (
    content_hash,
    digests,
    json_value,
    parse_json,
    read_findings,
    read_text,
)
from bertwright.files.resumable import ResumableFile

__all__ = [
    "ResumableFile",
    "atomic_file",
    "atomic_folder",
    "content_hash",
    "digests",
    "full_disk_named",
    "held",
    "held_alone",
    "is_stream",
    "json_value",
    "open_stream",
    "parse_json",
    "read_findings",
    "read_text",
    "require_file",
    "require_free",
    "require_other",
    "require_room",
    "require_writable",
    "sync_folder",
    "write_text",
]
