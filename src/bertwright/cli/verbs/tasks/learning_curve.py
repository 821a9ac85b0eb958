"""``bertwright learning-curve``: scores over the number of training examples."""

import json
import re
from typing import Annotated

import typer

from bertwright.cli.options import ModelArgument, OutputOption, PluginOption, exit_on_interrupt
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.task_options import SplitTaskOptions, require_one_task, with_options
from bertwright.core.errors import UserError


@with_options
def learning_curve(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    options: SplitTaskOptions,
    sizes: Annotated[
        str, typer.Option(help="Numbers of training examples, separated by commas.")
    ] = "100,300,1000,all",
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune on training sets of increasing size, from the pre-trained and a random encoder."""
    from bertwright.core.files import atomic_folder, require_new_folder, write_text
    from bertwright.interop.loading import load
    from bertwright.tasks.tuning.learning_curve import compute_learning_curve

    if not re.fullmatch(r"(\d+|all)(,(\d+|all))*", sizes):
        raise UserError(f"--sizes {sizes}: write numbers separated by commas, such as 100,300,all")
    numbers = [None if size == "all" else int(size) for size in sizes.split(",")]
    parsed = options.parse_settings()
    require_new_folder(output)
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
