"""Input files: expansion of paths, folders and patterns, and formats by file name."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.files import file_digests, require_file
from bertwright.core.object_storage import find_files, storage_url, storage_version
from bertwright.data.document import ReadCounts
from bertwright.data.hub.reference import HubDataset
from bertwright.data.languages import parse_input_languages

STANDARD_INPUT = "-"
FORMATS = ("txt", "json", "jsonl", "csv", "tsv", "parquet")
_FOLDER_FORMATS = tuple(format for format in FORMATS if format != "json")
"""Formats read from folders. Plain JSON files are seldom text, so they must be named."""

HUB_FORMAT = "hf"
"""Format of data sets on the Hub, which are streamed."""

_COMPRESSED_SUFFIXES = (".gz", ".zst")


@dataclass(frozen=True)
class TextSource:
    """A file, standard input or data set on the Hub with its format, columns and languages.

    Attributes:
        column: The text column of a table.
        languages: Languages of all texts; empty if not stated, two for translations.
        language_column: The column that states the language of each text, if any.
        translation_path: The file whose lines translate the lines of this file, if any.
        event_columns: The columns of user, item and time, if rows are events.
        annotations_column: The column of the annotations of each text, if any.
        is_dialogue: True if texts are dialogues with one turn per line.
        optional_columns: Further columns, read after the others; None where a row lacks one.
        split: The split of a data set on the Hub.
    """

    name: str
    format: str
    column: str = "text"
    languages: tuple[str, ...] = ()
    language_column: str | None = None
    translation_path: str | None = None
    event_columns: tuple[str, str, str] | None = None
    annotations_column: str | None = None
    is_dialogue: bool = False
    optional_columns: tuple[str, ...] = ()
    split: str = "train"

    @property
    def column_options(self) -> dict[str, str]:
        """Return the command line option of each column."""
        if self.event_columns is not None:
            return dict(zip(self.event_columns, ("--user", "--item", "--time"), strict=True))
        return {
            str(self.language_column): "--language-column",
            str(self.annotations_column): "--annotations",
            self.column: "--dialogue-column" if self.is_dialogue else "--column",
        }

    @property
    def has_language(self) -> bool:
        """Return whether the language of every text is known."""
        return bool(self.languages) or self.language_column is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to read, in order."""
        if self.event_columns is not None:
            return self.event_columns
        if len(self.languages) == 2:
            return self.languages
        columns = (self.column, self.language_column, self.annotations_column)
        return tuple(column for column in columns if column is not None)


def find_sources(
    inputs: Sequence[str | Path],
    column: str = "text",
    format: str | None = None,
    counts: ReadCounts | None = None,
    language_column: str | None = None,
    remedy: str = "set the format with --format",
    split: str = "train",
) -> list[TextSource]:
    """Return the files of paths, folders and patterns; files of a folder are sorted by name.

    ``hf:owner/name`` is the ``split`` of a data set on the Hub.
    ``remedy`` ends the error message for a file name without a known format.

    Errors: UserError if a path is empty or matches nothing, a format is unknown, only some files
    state their language, or one file is named with two languages.
    """
    if format is not None and format not in FORMATS:
        raise UserError(f"there is no text format {format!r}{did_you_mean(format, FORMATS)}")
    sources: dict[tuple[str, str | None], TextSource] = {}
    for argument in map(str, inputs):
        languages, paths = parse_input_languages(argument)
        if len(paths) == 2:
            first, second = (_translation_file(path, argument) for path in paths)
            sources[first, second] = TextSource(first, "txt", column, languages, None, second)
            continue
        for name in _matching_files(paths[0], format, languages, counts or ReadCounts()):
            file_format = format or (
                "txt" if name == STANDARD_INPUT else _format_from_name(name, languages)
            )
            if HubDataset.is_named(name):
                if format is not None:
                    raise UserError(f"{name} states its format: leave the format out")
                file_format = HUB_FORMAT
            if file_format is None:
                raise UserError(
                    f"{name}: no known suffix ({', '.join(f'.{known}' for known in FORMATS)}, "
                    f"each also .gz or .zst): {remedy}"
                )
            source = TextSource(
                name,
                file_format,
                column,
                languages,
                None if languages else language_column,
                split=split,
            )
            _require_language_support(source)
            if sources.setdefault((name, None), source).languages != languages:
                raise UserError(
                    f"{name} is named twice, with different languages: name it once, and the files "
                    f"of its folder one by one"
                )
    require_languages(list(sources.values()))
    return list(sources.values())


def content_version(source: TextSource) -> object:
    """Return what changes with the content of a source: digests, or a commit on the Hub.

    It is None for standard input.
    """
    if source.format == HUB_FORMAT:
        from bertwright.data.hub.rows import find_commit

        return find_commit(HubDataset.parse(source.name))
    if source.name == STANDARD_INPUT:
        return None
    url = storage_url(source.name)
    return file_digests(Path(source.name)) if url is None else storage_version(url)


def _require_language_support(source: TextSource) -> None:
    if source.format != "txt":
        return
    if len(source.languages) == 2:
        a, b = source.languages
        raise UserError(
            f"{source.name} is plain text and cannot hold both languages of translations: use two "
            f"files, {a},{b}=FILE,FILE"
        )
    if source.language_column is not None:
        raise UserError(
            f"{source.name} is plain text and has no column {source.language_column!r}: state its "
            f"language with en={source.name}"
        )


def require_languages(sources: Sequence[TextSource]) -> None:
    """Raise UserError if only some sources state their language."""
    with_language = [source for source in sources if source.has_language]
    if with_language and len(with_language) < len(sources):
        name = next(source.name for source in sources if not source.has_language)
        raise UserError(
            f"{with_language[0].name} states its language and {name} does not: write en={name}, "
            f"with the right code"
        )


def _translation_file(path: str, argument: str) -> str:
    if storage_url(path) is None:
        require_file(Path(path))
    if (format := _format_from_name(path)) not in (None, "txt"):
        codes = argument.partition("=")[0]
        raise UserError(
            f"{path} is {format}, and two files of translations are plain text, line by line: "
            f"write {codes}=TABLE for one table with a column for each language"
        )
    return path


def _matching_files(
    argument: str, format: str | None, languages: Sequence[str], counts: ReadCounts
) -> list[str]:
    if storage_url(argument) is not None:
        return _matching_urls(argument, format, languages, counts)
    if not argument:
        raise UserError("an input has an empty name: name a file, or a folder such as .")
    path = Path(argument)
    if HubDataset.is_named(argument):
        return [str(HubDataset.parse(argument))]
    if argument == STANDARD_INPUT or path.is_file():
        return [argument]
    if path.is_dir():
        files = sorted(str(f) for f in path.rglob("*") if f.is_file() and not _is_hidden(f, path))
        known = [
            file
            for file in files
            if format or _format_from_name(file, languages) in _FOLDER_FORMATS
        ]
        counts.ignored_files += len(files) - len(known)
        if not known:
            suffixes = ", ".join(f".{known}" for known in _FOLDER_FORMATS)
            raise UserError(
                f"{argument} holds no text: no file in it ends in {suffixes} (.gz, .zst)"
            )
        return known
    matches = sorted(f for f in glob.glob(argument, recursive=True) if Path(f).is_file())
    if not matches and path.exists():
        require_file(path)
    if not matches:
        raise UserError(f"{argument}: there is no such file or folder")
    return matches


def _matching_urls(
    url: str, format: str | None, languages: Sequence[str], counts: ReadCounts
) -> list[str]:
    urls = find_files(url)
    if urls == [url] or any(letter in url for letter in "*?["):
        return urls
    known = [name for name in urls if format or _format_from_name(name, languages)]
    counts.ignored_files += len(urls) - len(known)
    if not known:
        raise UserError(f"{url} holds no text: no file in it ends in a known suffix")
    return known


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _format_from_name(name: str, languages: Sequence[str] = ()) -> str | None:
    """Return the format of a file by its suffix; None if unknown.

    Files of parallel texts have a language code as their suffix.
    """
    path = Path(name)
    if path.suffix in _COMPRESSED_SUFFIXES:
        path = path.with_suffix("")
    suffix = path.suffix.removeprefix(".")
    if suffix in languages:
        return "txt"
    return suffix.lower() if suffix.lower() in FORMATS else None
