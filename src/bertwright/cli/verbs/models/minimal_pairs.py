"""``bertwright minimal-pairs``: score minimal pairs."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import LanguageOption, ModelArgument, PluginOption
from bertwright.cli.output import JsonOption, print_result


def minimal_pairs(
    model: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(
            help="Minimal pairs as in BLiMP: a .jsonl file, also .gz, or a folder of them."
        ),
    ],
    language: LanguageOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score minimal pairs by log-likelihood (causal models) or pseudo-log-likelihood.

    Scores are computed in float32; a tie counts as wrong.
    """
    from bertwright.interop.loading import load
    from bertwright.tasks.zero_shot.minimal_pairs import read_minimal_pairs, score_minimal_pairs

    pairs = read_minimal_pairs(file)
    scores = score_minimal_pairs(load(model, "float32"), pairs, language)
    if as_json:
        print_result(scores.as_dict(), as_json)
        return
    print_result({name: counts.accuracy for name, counts in scores.by_paradigm.items()}, as_json)
    total = scores.total
    result = {"pairs": total.num_pairs, "ties": total.num_ties, "accuracy": total.accuracy}
    interval = {} if scores.interval is None else {"interval": scores.interval}
    print_result({**result, **interval}, as_json)
