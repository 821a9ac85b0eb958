"""``bertwright glue``: fine-tune on every GLUE task."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.task_options import (
    BatchSizeOption,
    EpochsOption,
    LearningRateOption,
    SeedsOption,
    SettingsArgument,
    parse_settings,
    progress_reporter_factory,
)
from bertwright.core.errors import UserError


def glue(
    model: ModelArgument,
    output: OutputOption,
    data: Annotated[Path, typer.Option(help="Folder with a folder for each GLUE task.")],
    settings: SettingsArgument = None,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    batch_size: BatchSizeOption = None,
    seeds: SeedsOption = 1,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune on every GLUE task and write the files of a leaderboard submission."""
    from bertwright.runtime.process import configure_process

    configure_process()
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.glue import run_glue

    parsed = parse_settings(
        settings or [], seeds, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size
    )
    if parsed.output_type:
        key = next(iter(parsed.output_type))
        raise UserError(f"the tasks of GLUE state their output: leave output_type.{key} out")
    with exit_on_interrupt():
        result = run_glue(
            load(model),
            data,
            output,
            make_reporter=progress_reporter_factory(show_seed=False),
            log=log,
            settings=parsed.finetuning,
        )
    print_result(result, as_json)
