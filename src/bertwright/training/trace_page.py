"""Traces as one page that needs no network."""

from collections.abc import Sequence
from html import escape

from bertwright.training.trace_table import asked_as, coordinate_names, heading, shown_as
from bertwright.training.tracing import Token, Trace

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
h2 { font-size: 1rem; margin-top: 2.5rem; }
.text { line-height: 2.2; max-width: 60rem; }
.piece { padding: .1rem .3rem; margin: .1rem; border: 1px solid #ddd; border-radius: .3rem; }
.special { color: #999; }
.hidden { background: #fde0dc; border-color: #d9534f; }
.asked { box-shadow: inset 0 -3px #3c9a5f; }
table { border-collapse: collapse; margin-top: 1rem; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid #eee; }
td.shown { color: #b52b27; } td.ask { color: #23703f; }
td.number { font-variant-numeric: tabular-nums; color: #777; }
"""


def page(traces: Sequence[Trace]) -> str:
    """The HTML of some traces of one recipe."""
    title = escape(f"Trace of {traces[0].recipe}")
    body = "\n".join(map(_section, traces))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
        f"\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>Red: another piece is shown. Underlined: something is asked here.</p>\n{body}\n"
        "</body>\n</html>\n"
    )


def _section(trace: Trace) -> str:
    names = coordinate_names(trace)
    head = "".join(f"<th>{escape(n)}</th>" for n in ("place", "piece", "shown", *names, "asked"))
    rows = "\n".join(_row(token, names) for token in trace.tokens if not token.padding)
    text = " ".join(_chip(token) for token in trace.tokens if token.of_text)
    return (
        f'<h2>{escape(heading(trace))}</h2>\n<p class="text">{text}</p>\n'
        f"<table>\n<tr>{head}</tr>\n{rows}\n</table>"
    )


def _chip(token: Token) -> str:
    kinds = {"special": token.special, "hidden": token.hidden, "asked": bool(token.asks)}
    names = " ".join(["piece", *(name for name, true in kinds.items() if true)])
    told, shown = "; ".join(map(asked_as, token.asks)), token.written or token.shown
    return f'<span class="{names}" title="{escape(told)}">{escape(shown)}</span>'


def _row(token: Token, names: Sequence[str]) -> str:
    numbers = "".join(f'<td class="number">{token.coordinates[name]}</td>' for name in names)
    asked = "<br>".join(escape(asked_as(ask)) for ask in token.asks)
    piece = "(asks)" if token.piece is None else escape(token.piece)
    return (
        f'<tr><td class="number">{token.place}</td><td>{piece}</td>'
        f'<td class="shown">{escape(shown_as(token))}</td>{numbers}'
        f'<td class="ask">{asked}</td></tr>'
    )
