"""Prompt files: one text per line, or JSON lines with ``{"prompt": "a text"}``."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import format_suffix, parse_json_object, read_lines


def read_prompts(path: Path) -> Iterator[str]:
    """Yield the prompts of a ``.jsonl`` or text file, also ``.gz``.

    Errors: UserError that names the file and the line.
    """
    return parse_prompts(str(path), read_lines(path), format_suffix(path) == ".jsonl")


def parse_prompts(name: str, lines: Iterable[tuple[int, str]], is_json: bool) -> Iterator[str]:
    """Yield the prompts of numbered lines; ``name`` is for messages."""
    for number, line in lines:
        if not is_json:
            yield line
        elif line.strip():
            yield _parse_prompt(f"{name} line {number}", line)


def _parse_prompt(location: str, line: str) -> str:
    record = parse_json_object(location, line)
    if not isinstance(record.get("prompt"), str):
        raise UserError(f'{location}: expected {{"prompt": "a text"}}')
    return record["prompt"]
