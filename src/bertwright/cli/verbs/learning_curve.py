"""``bertwright learning-curve``: scores over the number of training examples."""

import json
import re
from typing import Annotated

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
    require_one_task,
)
from bertwright.core.errors import UserError


def learning_curve(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    settings: SettingsArgument = None,
    sizes: Annotated[
        str, typer.Option(help="Numbers of training examples, separated by commas.")
    ] = "100,300,1000,all",
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
    """Fine-tune on training sets of increasing size, from the pre-trained and a random encoder."""
    from bertwright.runtime.process import configure_process

    configure_process()
    from bertwright.core.files import atomic_folder, require_new_folder, write_text
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.learning_curve import compute_learning_curve

    if not re.fullmatch(r"(\d+|all)(,(\d+|all))*", sizes):
        raise UserError(f"--sizes {sizes}: write numbers separated by commas, such as 100,300,all")
    numbers = [None if size == "all" else int(size) for size in sizes.split(",")]
    parsed = parse_settings(
        settings or [], seeds, epochs=epochs, learning_rate=learning_rate, batch_size=batch_size
    )
    require_new_folder(output)
    options = TaskOptions(task, data, train, dev, text, pair, label, other or [], output_type, tags)
    task_data = options.task_data(context, parsed)
    with exit_on_interrupt():
        curve = compute_learning_curve(
            load(model),
            require_one_task(task_data, "learning-curve"),
            numbers,
            log=log,
            settings=parsed.finetuning,
        )
    result = curve.as_dict()
    with atomic_folder(output) as folder:
        write_text(folder / "learning_curve.json", json.dumps(result, indent=1) + "\n")
        curve.plot(folder / "learning_curve.png")
    print_result(result, as_json)
