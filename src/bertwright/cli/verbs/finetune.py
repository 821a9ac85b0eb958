"""``bertwright finetune``: fine-tune a pre-trained encoder for a task."""

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_result
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


def finetune(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    settings: SettingsArgument = None,
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
    """Fine-tune a model for a task and write the best epoch."""
    from bertwright.runtime.process import configure_process

    configure_process()
    from bertwright.core.files import require_new_folder
    from bertwright.interop.loading import load
    from bertwright.tasks.finetuning.finetune import finetune_tasks

    parsed = parse_settings(
        settings or [], seeds, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size
    )
    require_new_folder(output)
    options = TaskOptions(task, data, train, dev, text, pair, label, other or [], output_type, tags)
    task_data = options.task_data(context, parsed)
    with exit_on_interrupt():
        result = finetune_tasks(
            load(model),
            task_data,
            output=output,
            make_reporter=progress_reporter_factory(seeds > 1),
            **parsed.finetuning,
        )
    for warning in result.warnings:
        log(warning)
    print_result(result.as_dict(), as_json)
