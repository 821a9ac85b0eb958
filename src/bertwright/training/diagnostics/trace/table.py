"""A trace as a table on the terminal."""

from rich.table import Table
from rich.text import Text

from bertwright.training.diagnostics.trace.trace import SequenceTrace, TracedTarget, TracedToken

INPUT_STYLE, TARGET_STYLE, SPECIAL_STYLE = "bold red", "bold green", "dim"

COLUMNS = ("position", "token", "input")
"""The first columns; token info and targets follow."""

QUERY_TOKEN = "(query)"
"""Shown for a query position behind the text, which has no token."""

RELATION_LABELS = {
    "next": "the second text follows the first",
    "random": "the second text is random",
    "previous": "the second text precedes the first",
    "same-document": "the second text is from elsewhere in the document",
    "real": "all turns are from one dialogue",
    "fake": "one turn is from another dialogue",
}


def heading(trace: SequenceTrace) -> str:
    """Return the heading of a trace."""
    relation = "" if trace.relation is None else f", {RELATION_LABELS[trace.relation]}"
    return (
        f"{trace.recipe}, phase {trace.phase}, sequence {trace.sequence} of {len(trace.tokens)} "
        f"positions in epoch {trace.epoch}, objectives: {', '.join(trace.objectives)}{relation}"
    )


def varying_token_info(trace: SequenceTrace) -> list[str]:
    """Return the names of the token info that is not constant over the sequence."""
    names = trace.tokens[0].token_info
    return [n for n in names if len({token.token_info[n] for token in trace.tokens}) > 1]


def format_input(token: TracedToken) -> str:
    """Return the encoder's input where it differs from the token."""
    parts = [token.input_token] if token.is_masked else []
    return " -> ".join([*parts, *([token.replacement] if token.replacement else [])])


def format_target(target: TracedTarget) -> str:
    """Return a target and its predictions as text."""
    inputs = ", ".join(f"{name} {value}" for name, value in target.extra_inputs.items())
    top = ", ".join(f"{p.label} {p.probability:.1%}" for p in target.predictions)
    predictions = f" ({top}; correct: {target.probability:.1%})" if target.predictions else ""
    return f"{target.objective}: {target.label}{f' [{inputs}]' if inputs else ''}{predictions}"


def trace_table(trace: SequenceTrace) -> tuple[Text, Table]:
    """Return the heading and a table with a row for every position except padding."""
    names = varying_token_info(trace)
    table = Table(*COLUMNS, *names, "targets", box=None, pad_edge=False)
    for token in trace.tokens:
        if token.is_padding:
            continue
        table.add_row(
            str(token.position),
            Text(QUERY_TOKEN if token.token is None else token.token),
            Text(format_input(token), INPUT_STYLE),
            *(str(token.token_info[name]) for name in names),
            Text("; ".join(map(format_target, token.targets)), TARGET_STYLE),
            style=SPECIAL_STYLE if token.is_special and not token.targets else "",
        )
    return Text(heading(trace), "bold"), table
