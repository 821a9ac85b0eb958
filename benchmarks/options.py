"""Options and output that the benchmark commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bertwright.cli.output import print_results
from bertwright.core.errors import UserError

Number = TypeVar("Number", int, float)


def parse_numbers(option: str, text: str, convert: Callable[[str], Number]) -> list[Number]:
    """Return the comma-separated numbers of an option."""
    try:
        return [convert(number) for number in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text}: write numbers separated by commas") from None


def write_experiment(
    document: Path,
    section: str,
    question: str,
    source: str,
    *tables: tuple[dict[str, str], list[dict[str, Any]]],
) -> None:
    """Write the question of a plan and its tables into a document."""
    from benchmarks.markdown_sections import write_section
    from bertwright.runtime.markdown_report import markdown_table

    lines = [f"**{question}**" + (f" ({source})" if source else "")]
    for columns, results in tables:
        lines += ["", *markdown_table(columns, results)]
    write_section(document, section, lines)


def publish(
    name: str,
    results: list[dict[str, Any]],
    columns: dict[str, str],
    document: Path | None,
    as_json: bool,
) -> None:
    """Print results and write their ``columns`` (key to heading) into a document."""
    from benchmarks.markdown_sections import write_section
    from bertwright.runtime.markdown_report import markdown_table

    if document is not None:
        write_section(document, f"bench {name}", markdown_table(columns, results))
    print_results(results, columns, as_json)
