"""Checks for tokenizers that make the tokenizers library fail, and translation of its errors.

The library panics if a regular expression takes too long or a file is inconsistent. In Python a
panic is not an Exception but a BaseException, and the library prints it on stderr.
"""

import os
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers as library

from bertwright.core.errors import TokenizerError, UserError
from bertwright.core.files import parse_json, read_text

MAX_ID = 1 << 24
"""Maximum token id, which decides the size of tables."""

MAX_GROWTH = 1_000
"""Maximum number of characters that a normalizer may replace one character with."""

PROBE_LENGTH, MAX_PROBE_SECONDS = 4_000, 1.0
_PROBE_CHARACTERS = ("a", "A", "x", "1", " ", "\n", ".", "é", "中")
_LARGE_NUMBER = re.compile(r"[:\[,\s]\s*\d{8,}\s*[,}\]]")


def read_backend(file: Path) -> library.Tokenizer:
    """Return the tokenizer in a tokenizer.json.

    Errors: UserError if the file is not a tokenizer or has ids that are too large.
    """
    text = read_text(file)
    if _LARGE_NUMBER.search(text):  # rare; the library would count up to the largest id
        require_small_ids(_token_ids(parse_json(text, str(file), "copy it again")), file)
    try:
        with _suppress_stderr():
            return library.Tokenizer.from_str(text)
    except BaseException as error:
        if not is_library_error(error):
            raise
        raise UserError(f"{file} is not a tokenizer: {error}") from None


def require_small_ids(ids: Iterator[Any], file: Path) -> None:
    """Raise UserError for token ids that are invalid or too large."""
    for token_id in ids:
        if not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
            raise UserError(
                f"{file}: a token has the id {token_id!r:.40}, and ids lie between 0 and {MAX_ID:,}"
            )


def require_safe_backend(backend: library.Tokenizer, settings: Mapping[str, Any]) -> None:
    """Raise UserError for a tokenizer that fails, is too slow, or inflates the text.

    It is tested on repeated characters.
    """
    if _max_growth(settings["normalizer"]) > MAX_GROWTH:
        raise UserError(
            f"the normalizer replaces one character with more than {MAX_GROWTH:,}: remove it"
        )
    if (reason := _panic(backend, "a")) is not None:
        raise UserError(f"it cannot encode a text ({reason}): fix its tokenizer.json")
    parts = [settings["normalizer"], settings["pre_tokenizer"]]
    if not (patterns := list(_regular_expressions(parts))):
        return
    start = time.monotonic()
    for letter in (*_PROBE_CHARACTERS, *sorted(set(filter(str.isalnum, "".join(patterns))))[:20]):
        if (reason := _panic(backend, letter * PROBE_LENGTH + "!")) is not None:
            raise UserError(f"a regular expression takes too long ({reason}): fix it")
        if time.monotonic() - start > MAX_PROBE_SECONDS:
            raise UserError("a regular expression takes too long: fix it")


def _panic(backend: library.Tokenizer, text: str) -> str | None:
    """Return the error message of the library for a text; None if it can encode the text."""
    try:
        with _suppress_stderr():
            backend.encode(text, add_special_tokens=False)
    except BaseException as error:
        if not is_library_error(error):
            raise
        return str(error)
    return None


def translate_error(error: BaseException) -> BaseException:
    """Return a TokenizerError for an error of the library, and any other error unchanged."""
    if not is_library_error(error):
        return error
    return TokenizerError(f"the tokenizer cannot encode a text ({error}): fix its tokenizer.json")


def is_library_error(error: BaseException) -> bool:
    """Return whether an error comes from the library: a panic, or a bare Exception."""
    return type(error) is Exception or type(error).__name__ == "PanicException"


def _token_ids(settings: Any) -> Iterator[Any]:
    """Yield every id of a tokenizer.json."""
    if not isinstance(settings, dict):
        return
    model, added = settings.get("model"), settings.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from vocabulary.values()
    for token in added if isinstance(added, list) else ():
        yield token.get("id") if isinstance(token, dict) else None


def _max_growth(normalizer: Any) -> float:
    """Return the maximum number of characters that a normalizer replaces one character with."""
    if not isinstance(normalizer, dict):
        return 1.0
    growth = 1.0
    for part in normalizer.get("normalizers", ()):
        growth *= _max_growth(part)
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
def _suppress_stderr() -> Generator[None]:
    """Suppress a panic's output on stderr."""
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
