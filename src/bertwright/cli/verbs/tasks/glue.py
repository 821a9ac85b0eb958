"""``bertwright glue``: fine-tune on every GLUE task."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.task_options import FineTuningOptions, progress_reporter_factory, with_options
from bertwright.core.errors import UserError


@with_options
def glue(
    model: ModelArgument,
    output: OutputOption,
    data: Annotated[Path, typer.Option(help="Folder with a folder for each GLUE task.")],
    options: FineTuningOptions,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune on every GLUE task and write the files of a leaderboard submission."""
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.glue import run_glue

    parsed = options.parse_settings()
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
