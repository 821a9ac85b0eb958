"""``bertwright cross-validate``: score every training example once, by folds."""

import json
from typing import Annotated

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.task_options import (
    BatchSizeOption,
    DataOption,
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
    require_one_task,
)


def cross_validate(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    settings: SettingsArgument = None,
    folds: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    task: TaskOption = None,
    data: DataOption = None,
    train: TrainOption = None,
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
    """Fine-tune on all folds but one in turn and report the cross-validated score."""
    from bertwright.runtime.process import configure_process

    configure_process()
    from bertwright.core.files import atomic_folder, require_new_folder, write_text
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.cross_validation import cross_validate as run_folds

    parsed = parse_settings(
        settings or [], seeds, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size
    )
    require_new_folder(output)
    options = TaskOptions(
        task, data, train, None, text, pair, label, other or [], output_type, tags
    )
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
