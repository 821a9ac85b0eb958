"""What the verbs of ``bench`` share: lists of numbers, and how figures are told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bertwright.cli.output import report_results
from bertwright.errors import UserError

Number = TypeVar("Number", int, float)


def numbers_of(option: str, said: str, kind: Callable[[str], Number]) -> list[Number]:
    """The numbers of an option, which stand between commas."""
    try:
        return [kind(number) for number in said.split(",")]
    except ValueError:
        raise UserError(f"{option} {said}: write numbers with commas between them") from None


def answer(
    document: Path,
    section: str,
    question: str,
    source: str,
    *tables: tuple[dict[str, str], list[dict[str, Any]]],
) -> None:
    """Write the question of a plan, and the tables that answer it, into the document."""
    from bertwright.document import table, write_section

    lines = [f"**{question}**" + (f" ({source})" if source else "")]
    for columns, results in tables:
        lines += ["", *table(columns, results)]
    write_section(document, section, lines)


def publish(
    verb: str,
    results: list[dict[str, Any]],
    columns: dict[str, str],
    document: Path | None,
    as_json: bool,
) -> None:
    """Print the figures, and write those of ``columns`` (key to heading) into the document."""
    from bertwright.document import table, write_section

    if document is not None:
        write_section(document, f"bench {verb}", table(columns, results))
    report_results(results, columns, as_json)
