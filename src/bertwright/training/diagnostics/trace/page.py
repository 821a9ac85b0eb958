"""Traces as a self-contained HTML page."""

from collections.abc import Sequence
from html import escape

from bertwright.training.diagnostics.trace.table import (
    COLUMNS,
    QUERY_TOKEN,
    format_input,
    format_target,
    heading,
    varying_token_info,
)
from bertwright.training.diagnostics.trace.trace import SequenceTrace, TracedToken

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }
h2 { font-size: 1rem; margin-top: 2.5rem; }
.text { line-height: 2.2; max-width: 60rem; }
.token { padding: .1rem .3rem; margin: .1rem; border: 1px solid #ddd; border-radius: .3rem; }
.special { color: #999; }
.masked { background: #fde0dc; border-color: #d9534f; }
.target { box-shadow: inset 0 -3px #3c9a5f; }
table { border-collapse: collapse; margin-top: 1rem; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid #eee; }
td.input { color: #b52b27; } td.targets { color: #23703f; }
td.number { font-variant-numeric: tabular-nums; color: #777; }
"""


def render_page(traces: Sequence[SequenceTrace]) -> str:
    """Render traces of one recipe as HTML."""
    title = escape(f"Trace of {traces[0].recipe}")
    body = "\n".join(map(_section, traces))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>'
        f"\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>Red: masked or replaced. Underlined: has a target.</p>\n{body}\n"
        "</body>\n</html>\n"
    )


def _section(trace: SequenceTrace) -> str:
    names = varying_token_info(trace)
    head = "".join(f"<th>{escape(n)}</th>" for n in (*COLUMNS, *names, "targets"))
    rows = "\n".join(_table_row(token, names) for token in trace.tokens if not token.is_padding)
    text = " ".join(_token_span(token) for token in trace.tokens if token.is_text)
    return (
        f'<h2>{escape(heading(trace))}</h2>\n<p class="text">{text}</p>\n'
        f"<table>\n<tr>{head}</tr>\n{rows}\n</table>"
    )


def _token_span(token: TracedToken) -> str:
    flags = {"special": token.is_special, "masked": token.is_masked, "target": bool(token.targets)}
    classes = " ".join(["token", *(name for name, is_set in flags.items() if is_set)])
    title = "; ".join(map(format_target, token.targets))
    text = token.replacement or token.input_token
    return f'<span class="{classes}" title="{escape(title)}">{escape(text)}</span>'


def _table_row(token: TracedToken, names: Sequence[str]) -> str:
    numbers = "".join(f'<td class="number">{token.token_info[name]}</td>' for name in names)
    targets = "<br>".join(escape(format_target(target)) for target in token.targets)
    text = QUERY_TOKEN if token.token is None else escape(token.token)
    return (
        f'<tr><td class="number">{token.position}</td><td>{text}</td>'
        f'<td class="input">{escape(format_input(token))}</td>{numbers}'
        f'<td class="targets">{targets}</td></tr>'
    )
