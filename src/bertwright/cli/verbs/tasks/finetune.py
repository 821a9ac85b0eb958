"""``bertwright finetune``: fine-tune a pre-trained encoder for a task."""

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_scores
from bertwright.cli.task_options import SplitTaskOptions, progress_reporter_factory, with_options


@with_options
def finetune(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    options: SplitTaskOptions,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model for a task and write the best epoch."""
    from bertwright.core.files import require_new_folder
    from bertwright.interop.loading import load
    from bertwright.tasks.finetuning.finetune import finetune_tasks

    parsed = options.parse_settings()
    require_new_folder(output)
    task_data = options.task_data(context, parsed)
    with exit_on_interrupt():
        result = finetune_tasks(
            load(model),
            task_data,
            output=output,
            make_reporter=progress_reporter_factory(options.seeds > 1),
            **parsed.finetuning,
        )
    for warning in result.warnings:
        log(warning)
    print_scores(result.as_dict(), as_json)
