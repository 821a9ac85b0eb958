"""Shell commands of notebooks: a failing one stops the notebook, and its output is one text."""

import subprocess

from IPython import get_ipython


def run(command: str) -> None:
    """Run a command of a ``!`` line."""
    result = subprocess.run(
        command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(result.stdout, end="")
    if result.returncode:
        raise RuntimeError(f"exit code {result.returncode}: {command}")


get_ipython().system = run
