"""What is to be read: the files behind paths, folders and patterns, and what each of them holds."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.files import require_file
from bertwright.text.documents import ReadCounts
from bertwright.text.languages import declared

STANDARD_INPUT = "-"
FORMATS = ("txt", "json", "jsonl", "csv", "tsv", "parquet")
_FOUND_IN_FOLDERS = tuple(format for format in FORMATS if format != "json")
"""What else lies about as JSON is seldom text: it is read where it is named."""

_COMPRESSED = (".gz", ".zst")


@dataclass(frozen=True)
class Source:
    """A file (or standard input), what format it has, and where its texts and their languages are.

    Attributes:
        column: holds the text of a table.
        languages: of all texts, where they are stated; two where the file holds translations.
        language_column: holds the language of each text of a table.
        beside: the file whose lines translate those of this one.
        of_event: the columns of user, item and time, where rows are no texts.
        annotations: holds what is known of stretches of each text of a table.
        dialogues: whether its texts are dialogues, a turn in each line.
    """

    name: str
    format: str
    column: str = "text"
    languages: tuple[str, ...] = ()
    language_column: str | None = None
    beside: str | None = None
    of_event: tuple[str, str, str] | None = None
    annotations: str | None = None
    dialogues: bool = False

    @property
    def options(self) -> dict[str, str]:
        """The option of the command line that names each column."""
        if self.of_event is not None:
            return dict(zip(self.of_event, ("--user", "--item", "--time"), strict=True))
        return {
            str(self.language_column): "--language-column",
            str(self.annotations): "--annotations",
            self.column: "--dialogue-column" if self.dialogues else "--column",
        }

    @property
    def speaks(self) -> bool:
        """Whether the language of every text is known."""
        return bool(self.languages) or self.language_column is not None

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of a row: a text, perhaps its language and annotations, or both sides of a
        pair; an event where rows are no texts."""
        if self.of_event is not None:
            return self.of_event
        if len(self.languages) == 2:
            return self.languages
        known = (self.column, self.language_column, self.annotations)
        return tuple(column for column in known if column is not None)


def find_sources(
    inputs: Sequence[str | Path],
    column: str = "text",
    format: str | None = None,
    counts: ReadCounts | None = None,
    language_column: str | None = None,
    remedy: str = "say what it is with --format",
) -> list[Source]:
    """The files that paths, folders and patterns name; folders in the order of their names.
    ``remedy`` is what is said to do about a name that does not tell its format.

    Errors: UserError for a name that fits nothing, for a format that is not known, and where the
    language of some files is stated and that of others is not.
    """
    if format is not None and format not in FORMATS:
        raise UserError(f"there is no text format {format!r}{did_you_mean(format, FORMATS)}")
    sources: dict[tuple[str, str | None], Source] = {}
    for given in map(str, inputs):
        languages, paths = declared(given)
        if len(paths) == 2:
            first, second = (_aligned_file(path, given) for path in paths)
            sources[first, second] = Source(first, "txt", column, languages, None, second)
            continue
        for name in _files(paths[0], format, languages, counts or ReadCounts()):
            found = format or ("txt" if name == STANDARD_INPUT else _format_of(name, languages))
            if found is None:
                raise UserError(
                    f"{name}: no known ending ({', '.join(f'.{known}' for known in FORMATS)}, "
                    f"each also .gz or .zst): {remedy}"
                )
            stated = None if languages else language_column
            source = Source(name, found, column, languages, stated)
            _check_languages(source)
            sources.setdefault((name, None), source)
    found_sources = list(sources.values())
    check_all_speak(found_sources)
    return found_sources


def _check_languages(source: Source) -> None:
    if source.format != "txt":
        return
    if len(source.languages) == 2:
        a, b = source.languages
        raise UserError(
            f"{source.name} is plain text and cannot hold both sides of translations: name two "
            f"files, {a},{b}=FILE,FILE"
        )
    if source.language_column is not None:
        raise UserError(
            f"{source.name} is plain text and has no column {source.language_column!r}: state its "
            f"language as en={source.name}"
        )


def check_all_speak(sources: Sequence[Source]) -> None:
    """UserError where the language of some sources is stated and that of others is not."""
    known = [source for source in sources if source.speaks]
    if known and len(known) < len(sources):
        silent = next(source for source in sources if not source.speaks)
        raise UserError(
            f"the language of {known[0].name} is stated and that of {silent.name} is not: write "
            f"en={silent.name}, with its own code"
        )


def _aligned_file(path: str, given: str) -> str:
    require_file(Path(path))
    if (format := _format_of(path)) not in (None, "txt"):
        codes = given.partition("=")[0]
        raise UserError(
            f"{path} is {format}, and two files of translations are plain text, line by line: "
            f"write {codes}=TABLE for one table with a column for each language"
        )
    return path


def _files(
    given: str, format: str | None, languages: Sequence[str], counts: ReadCounts
) -> list[str]:
    path = Path(given)
    if given == STANDARD_INPUT or path.is_file():
        return [given]
    if path.is_dir():
        files = sorted(str(f) for f in path.rglob("*") if f.is_file() and not _hidden(f, path))
        known = [
            file for file in files if format or _format_of(file, languages) in _FOUND_IN_FOLDERS
        ]
        counts.ignored_files += len(files) - len(known)
        if not known:
            endings = ", ".join(f".{known}" for known in _FOUND_IN_FOLDERS)
            raise UserError(f"{given} holds no text: no file in it ends in {endings} (.gz, .zst)")
        return known
    matches = sorted(f for f in glob.glob(given, recursive=True) if Path(f).is_file())
    if not matches:
        raise UserError(f"{given}: there is no such file or folder")
    return matches


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _format_of(name: str, languages: Sequence[str] = ()) -> str | None:
    """By the ending of a name; that of a parallel text is the code of its language."""
    path = Path(name)
    if path.suffix in _COMPRESSED:
        path = path.with_suffix("")
    ending = path.suffix.removeprefix(".")
    if ending in languages:
        return "txt"
    return ending.lower() if ending.lower() in FORMATS else None
