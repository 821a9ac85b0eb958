"""``bertwright minimal-pairs``: whether a model prefers the acceptable sentence."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.embed import Language
from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin


def minimal_pairs(
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    file: Annotated[
        Path,
        typer.Argument(help="Pairs as in BLiMP: a .jsonl file, also .gz, or a folder of them."),
    ],
    language: Language = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Score minimal pairs in float32: by log-likelihood in a causal model, in others by
    pseudo-log-likelihood. A tie counts as wrong."""
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.interop.loading import load
    from bertwright.tasks.formats.minimal_pairs import read_minimal_pairs
    from bertwright.tasks.minimal_pairs import score_minimal_pairs

    pairs = read_minimal_pairs(file)
    scores = score_minimal_pairs(load(model, "float32"), pairs, language)
    if as_json:
        report(scores.as_dict(), as_json)
        return
    report({name: found.accuracy for name, found in scores.paradigms.items()}, as_json)
    found = scores.all
    figures = {"pairs": found.pairs, "ties": found.ties, "accuracy": found.accuracy}
    interval = {} if scores.interval is None else {"interval": scores.interval}
    report({**figures, **interval}, as_json)
