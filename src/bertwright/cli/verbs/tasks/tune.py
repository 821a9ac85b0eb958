"""``bertwright tune``: search the settings of fine-tuning."""

import json
from typing import Annotated, Any

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, print_scores
from bertwright.cli.task_options import SplitTaskOptions, progress_reporter_factory, with_options
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError


@with_options
def tune(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    options: SplitTaskOptions,
    grid: Annotated[
        str | None, typer.Option(help="Published grid to search: bert, roberta, electra.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Number of Optuna trials, instead of a grid.")
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search settings of fine-tuning and write the best model."""
    from bertwright.core.files import require_new_folder
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.search import GRIDS, search_grid, search_optuna

    if (grid is None) == (trials is None):
        raise UserError("tune needs either --grid or --trials")
    if grid is not None and grid not in GRIDS:
        raise UserError(f"--grid {grid}{did_you_mean(grid, GRIDS)}")
    parsed = options.parse_settings()
    require_new_folder(output)
    task_data = options.task_data(context, parsed)
    make_reporter = progress_reporter_factory(show_seed=False)
    with exit_on_interrupt():
        loaded = load(model)
        if trials is None:
            assert grid is not None
            result = search_grid(loaded, task_data, grid, make_reporter, parsed.finetuning)
        else:
            result = search_optuna(loaded, task_data, trials, make_reporter, parsed.finetuning)
    summary: dict[str, Any] = result.as_dict()
    result.best_result.write(output, {"tuning.json": json.dumps(summary, indent=1) + "\n"})
    print_scores({**result.best_result.as_dict(), **summary}, as_json)
