"""Run the command line in this process."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from bertwright.cli.app import app


def invoke(*words: Any, stdin: str | None = None) -> Result:
    """Run a command that must succeed; raise the error of one that fails."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def invoke_json(*words: Any, stdin: str | None = None) -> Any:
    """Return what a command prints with --json."""
    return json.loads(invoke(*words, "--json", stdin=stdin).stdout)
