"""A trace in words: the columns of a terminal's table and of a page."""

from rich.table import Table
from rich.text import Text

from bertwright.training.tracing import Ask, Token, Trace

SHOWN, ASKED, SPECIAL = "bold red", "bold green", "dim"


def heading(trace: Trace) -> str:
    """What is traced."""
    pair = "" if trace.relation is None else f", {RELATION[trace.relation]}"
    return (
        f"{trace.recipe}, phase {trace.phase}, row {trace.row} of {len(trace.tokens)} places in "
        f"epoch {trace.epoch}, asked: "
        f"{', '.join(trace.objectives)}{pair}"
    )


RELATION = {
    "next": "the second text is what follows the first",
    "random": "the second text is a random one",
    "previous": "the second text is what comes before the first",
    "same-document": "the second text is of the same document, elsewhere",
    "real": "the turns are those of a dialogue",
    "fake": "one of the turns is of another dialogue",
}


def coordinate_names(trace: Trace) -> list[str]:
    """The coordinates that are not the same everywhere."""
    names = trace.tokens[0].coordinates
    return [n for n in names if len({token.coordinates[n] for token in trace.tokens}) > 1]


def shown_as(token: Token) -> str:
    """What stands there for the encoder, where it is not the piece."""
    parts = [token.shown] if token.hidden else []
    return " -> ".join([*parts, *([token.written] if token.written else [])])


def asked_as(ask: Ask) -> str:
    """A question, and what was answered."""
    beside = ", ".join(f"{name} {value}" for name, value in ask.beside.items())
    answers = ", ".join(f"{a.choice} {a.probability:.1%}" for a in ask.answers)
    said = f" ({answers}; right: {ask.probability:.1%})" if ask.answers else ""
    return f"{ask.objective}: {ask.target}{f' [{beside}]' if beside else ''}{said}"


def table(trace: Trace) -> tuple[Text, Table]:
    """A heading and a row for every place but those of padding."""
    names = coordinate_names(trace)
    made = Table("place", "piece", "shown", *names, "asked", box=None, pad_edge=False)
    for token in trace.tokens:
        if token.padding:
            continue
        asked = Text("; ".join(map(asked_as, token.asks)), ASKED)
        piece = Text("(asks)" if token.piece is None else token.piece)
        numbers = [str(token.coordinates[name]) for name in names]
        made.add_row(
            str(token.place),
            piece,
            Text(shown_as(token), SHOWN),
            *numbers,
            asked,
            style=SPECIAL if token.special and not token.asks else "",
        )
    return Text(heading(trace), "bold"), made
