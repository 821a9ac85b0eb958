"""Prompts: a text on each line, or JSON lines with ``{"prompt": "a text"}``."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bertwright.errors import UserError
from bertwright.tasks.formats.lines import json_object, read_lines, suffix_of


def read_prompts(path: Path) -> Iterator[str]:
    """The prompts of a file, ``.jsonl`` or plain text, also ``.gz``.

    Errors: UserError, naming file and line.
    """
    return prompts_of(str(path), read_lines(path), suffix_of(path) == ".jsonl")


def prompts_of(name: str, lines: Iterable[tuple[int, str]], is_json: bool) -> Iterator[str]:
    """The prompts of numbered lines; ``name`` is for messages."""
    for number, line in lines:
        if not is_json:
            yield line
        elif line.strip():
            yield _prompt(f"{name} line {number}", line)


def _prompt(where: str, line: str) -> str:
    row = json_object(where, line)
    if not isinstance(row.get("prompt"), str):
        raise UserError(f'{where}: expected {{"prompt": "a text"}}')
    return row["prompt"]
