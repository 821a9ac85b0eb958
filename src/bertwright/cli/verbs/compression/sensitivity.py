"""``bertwright sensitivity``: the cost of quantising each module of a model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.options import FineTunedArgument, PluginOption, load_fine_tuned
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.task_options import DevOption

COLUMNS = {
    "module": "module",
    "loss": "loss",
    "loss_increase": "increase",
    "low": "from",
    "high": "to",
    "eigenvalue": "largest eigenvalue",
    "deviation": "deviation",
    "omega": "omega",
    "gradient_norm": "gradient norm",
}
"""Columns of the table, by key."""


def sensitivity(
    model: FineTunedArgument,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="Quantisation: bits, other_bits, granularity (tensor, row, group), scheme "
            "(symmetric, asymmetric), activations (bits, scheme, tensors, ranges, observer; "
            "null: not at all).",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the training and the development file.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="Training file, for the ranges of activations.")
    ] = None,
    dev: DevOption = None,
    max_examples: Annotated[
        int, typer.Option(min=1, help="Use at most N examples of each file.")
    ] = 256,
    num_subsets: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of training subsets for the eigenvalues of the Hessian; 0: skip.",
        ),
    ] = 4,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much the loss rises when each module of a fine-tuned model is quantised alone.

    Modules are the whole model, every block, every matrix and table, and the inputs and outputs of
    every linear layer; blocks also get the largest eigenvalue of the Hessian of the loss.
    """
    from bertwright.compression.quantization.sensitivity import quantization_costs
    from bertwright.compression.quantization.sharpness import block_sharpness
    from bertwright.core.rng import sample
    from bertwright.recipes.loading import apply_overrides
    from bertwright.runtime.markdown_report import markdown_table
    from bertwright.tasks.adapters.quantization.config import Quantization
    from bertwright.tasks.data.task_data import TaskData

    options: dict[str, Any] = apply_overrides(
        {"kind": "quantised", "activations": {}}, settings or []
    )
    quantization = Quantization.from_settings(options)
    loaded = load_fine_tuned(model, "float32", needs_head_for="sensitivity")
    _, train_examples, dev_examples = TaskData(loaded.task, data, train, dev).load_splits()
    train_examples = sample(train_examples, max_examples)
    dev_examples = sample(dev_examples, max_examples)
    costs = quantization_costs(loaded, quantization, train_examples, dev_examples)
    results = {cost.module: cost.as_dict() for cost in costs}
    for sharpness in block_sharpness(loaded, train_examples, num_subsets):
        results[f"blocks.{sharpness.block}"] |= sharpness.as_dict()
    modules = list(results.values())
    result = {"task": loaded.task.name, "modules": modules}
    print_result(result, as_json, markdown_table(COLUMNS, modules))
