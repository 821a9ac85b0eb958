"""``bertwright pareto``: compare models of one task by score, size and latency."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import PluginOption
from bertwright.cli.output import JsonOption, PlotOption, log, print_results


def pareto(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER ...",
            help="Fine-tuned models or their ONNX folders; the first is the baseline. "
            "FOLDER@float32 and FOLDER@int8 set the precision.",
        ),
    ],
    data: Annotated[Path, typer.Option(help="Task file or folder to score on.")],
    plot: PlotOption = None,
    rounds: Annotated[int, typer.Option(min=3, help="Number of interleaved timing rounds.")] = 15,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads; by default all.")
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare models of one task by score, size and latency."""
    from bertwright.timing.artefacts import ARTEFACT_COLUMNS, Artefact, compare_artefacts
    from bertwright.timing.pareto_plot import plot_pareto

    artefacts = [Artefact.parse(folder) for folder in folders]
    results = compare_artefacts(artefacts, data, rounds, threads, log)
    if plot is not None:
        plot_pareto(results, plot)
    print_results(results, ARTEFACT_COLUMNS, as_json)
