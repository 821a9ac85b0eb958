"""Traces as a self-contained HTML page."""

from collections.abc import Sequence
from importlib import resources

from jinja2 import Environment, StrictUndefined

from bertwright.training.diagnostics.trace import table
from bertwright.training.diagnostics.trace.trace import SequenceTrace


def render_page(traces: Sequence[SequenceTrace]) -> str:
    """Render traces of one recipe as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    package = resources.files("bertwright.training.diagnostics.trace")
    template = environment.from_string(package.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(title=f"Trace of {traces[0].recipe}", traces=traces, table=table)
