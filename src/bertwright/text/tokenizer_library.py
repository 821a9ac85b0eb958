"""What the tokenizers library cannot read: found before it tries where that can be, named else.

The library ends in a panic where a regular expression takes too long or a file contradicts itself.
To Python a panic is no Exception, and it prints lines of its own.
"""

import os
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers as library

from bertwright.errors import TokenizerFailure, UserError
from bertwright.files import parse_json, read_text

MAX_ID = 1 << 24
"""The largest id of a token: tables are as long as the largest."""

MAX_GROWTH = 1_000
"""Characters that a normalizer may make of one."""

PROBED_LENGTH, PROBED_SECONDS = 4_000, 1.0
_PROBED = ("a", "A", "x", "1", " ", "\n", ".", "é", "中")
_LARGE_NUMBER = re.compile(r"[:\[,\s]\s*\d{8,}\s*[,}\]]")


def read_backend(file: Path) -> library.Tokenizer:
    """Return the tokenizer in a tokenizer.json.

    Errors: UserError for a file that is none, or whose ids are larger than any vocabulary.
    """
    text = read_text(file)
    if _LARGE_NUMBER.search(text):  # seldom: the library counts up to the largest id
        require_small_ids(_ids(parse_json(text, str(file), "copy it again")), file)
    try:
        with _silent():
            return library.Tokenizer.from_str(text)
    except BaseException as error:
        if not of_library(error):
            raise
        raise UserError(f"{file} is not a tokenizer: {error}") from None


def require_small_ids(ids: Iterator[Any], file: Path) -> None:
    """Refuse ids that are larger than any vocabulary: UserError."""
    for number in ids:
        if not isinstance(number, int) or not 0 <= number <= MAX_ID:
            raise UserError(
                f"{file}: a token has the id {number!r:.40}, and ids lie between 0 and {MAX_ID:,}"
            )


def require_readable(backend: library.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Refuse a tokenizer that cannot read the plainest text, whose regular expressions take too
    long on plain texts, or whose normalizer makes much of little: UserError."""
    if _growth(settings["normalizer"]) > MAX_GROWTH:
        raise UserError(
            f"the normalizer makes more than {MAX_GROWTH:,} characters of one: leave it out"
        )
    if (reason := _panic(backend, "a")) is not None:
        raise UserError(f"it cannot read a text ({reason}): mend its tokenizer.json")
    parts = [settings["normalizer"], settings["pre_tokenizer"]]
    if not (patterns := list(_regular_expressions(parts))):
        return
    began = time.monotonic()
    for letter in (*_PROBED, *sorted(set(filter(str.isalnum, "".join(patterns))))[:20]):
        if (reason := _panic(backend, letter * PROBED_LENGTH + "!")) is not None:
            raise UserError(f"a regular expression takes too long ({reason}): mend it")
        if time.monotonic() - began > PROBED_SECONDS:
            raise UserError("a regular expression takes too long: mend it")


def _panic(backend: library.Tokenizer, text: str) -> str | None:
    """Return why the library cannot read a text, None where it can."""
    try:
        with _silent():
            backend.encode(text, add_special_tokens=False)
    except BaseException as error:
        if not of_library(error):
            raise
        return str(error)
    return None


def failure(error: BaseException) -> BaseException:
    """Return what to raise for an error that was met while a text was read: one sentence for those
    of the library, the same for any other."""
    if not of_library(error):
        return error
    return TokenizerFailure(f"the tokenizer cannot read a text ({error}): mend its tokenizer.json")


def of_library(error: BaseException) -> bool:
    """Whether an error is one of the library's: a panic, or a bare Exception."""
    return type(error) is Exception or type(error).__name__ == "PanicException"


def _ids(settings: Any) -> Iterator[Any]:
    """Yield every id of a tokenizer.json."""
    if not isinstance(settings, dict):
        return
    model, added = settings.get("model"), settings.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from vocabulary.values()
    for token in added if isinstance(added, list) else ():
        yield token.get("id") if isinstance(token, dict) else None


def _growth(normalizer: Any) -> float:
    """Return how many characters a normalizer may make of one."""
    if not isinstance(normalizer, dict):
        return 1.0
    growth = 1.0
    for part in normalizer.get("normalizers", ()):
        growth *= _growth(part)
    if normalizer.get("type") == "Replace":
        pattern, content = normalizer.get("pattern", {}), str(normalizer.get("content", ""))
        replaced = pattern.get("String", "") if isinstance(pattern, dict) else ""
        growth *= max(1.0, len(content) / len(replaced) if replaced else 1.0 + len(content))
    return growth


def _regular_expressions(settings: Any) -> Iterator[str]:
    if isinstance(settings, dict):
        if isinstance(pattern := settings.get("Regex"), str):
            yield pattern
        settings = list(settings.values())
    if isinstance(settings, list):
        for part in settings:
            yield from _regular_expressions(part)


@contextmanager
def _silent() -> Generator[None]:
    """Keep what a panic prints from standard error."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
