"""``bertwright cross-validate``: score every training example once, by folds."""

import json
from typing import Annotated

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.task_options import (
    TaskOptions,
    progress_reporter_factory,
    require_one_task,
    with_options,
)


@with_options
def cross_validate(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    options: TaskOptions,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune on all folds but one in turn and report the cross-validated score."""
    from bertwright.core.files import atomic_folder, require_new_folder, write_text
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.cross_validation import cross_validate as run_folds

    parsed = options.parse_settings()
    require_new_folder(output)
    task_data = options.task_data(context, parsed)
    with exit_on_interrupt():
        result = run_folds(
            load(model),
            require_one_task(task_data, "cross-validate"),
            folds,
            make_reporter=progress_reporter_factory(show_seed=False),
            log=log,
            settings=parsed.finetuning,
        ).as_dict()
    with atomic_folder(output) as folder:
        write_text(folder / "folds.json", json.dumps(result, indent=1) + "\n")
    print_result(result, as_json)
