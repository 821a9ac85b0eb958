"""``bertwright search``: search the settings of fine-tuning."""

import json
from typing import Annotated, Any

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.task_options import (
    BatchSizeOption,
    DataOption,
    DevOption,
    EpochsOption,
    LabelOption,
    LearningRateOption,
    OtherOption,
    OutputTypeOption,
    PairOption,
    SeedsOption,
    SettingsArgument,
    TagsOption,
    TaskOption,
    TaskOptions,
    TextOption,
    TrainOption,
    parse_settings,
    progress_reporter_factory,
)
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError


def search(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    settings: SettingsArgument = None,
    grid: Annotated[
        str | None, typer.Option(help="Published grid to search: bert, roberta, electra.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Number of Optuna trials, instead of a grid.")
    ] = None,
    task: TaskOption = None,
    data: DataOption = None,
    train: TrainOption = None,
    dev: DevOption = None,
    text: TextOption = "text",
    pair: PairOption = None,
    label: LabelOption = "label",
    other: OtherOption = None,
    output_type: OutputTypeOption = "class",
    tags: TagsOption = None,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    batch_size: BatchSizeOption = None,
    seeds: SeedsOption = 1,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search settings of fine-tuning and write the best model."""
    from bertwright.runtime.process import configure_process

    configure_process()
    from bertwright.core.files import require_new_folder
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.search import GRIDS, search_grid, search_optuna

    if (grid is None) == (trials is None):
        raise UserError("search needs either --grid or --trials")
    if grid is not None and grid not in GRIDS:
        raise UserError(f"--grid {grid}{did_you_mean(grid, GRIDS)}")
    parsed = parse_settings(
        settings or [], seeds, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size
    )
    require_new_folder(output)
    options = TaskOptions(task, data, train, dev, text, pair, label, other or [], output_type, tags)
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
    result.best_result.write(output, {"search.json": json.dumps(summary, indent=1) + "\n"})
    print_result({**result.best_result.as_dict(), **summary}, as_json)
