"""``bertwright sensitivity``: what each place of a model costs when it is rounded."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin

COLUMNS = {
    "place": "place",
    "loss": "loss",
    "rise": "rise",
    "low": "from",
    "high": "to",
    "sharpness": "eigenvalue of the greatest magnitude",
    "deviation": "deviation",
    "omega": "omega",
    "gradient": "norm of the gradient",
}
"""What is shown of every place, by key."""


def sensitivity(
    model: Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="How it is rounded: bits, outside, by (tensor, row, group), scheme (symmetric, "
            "asymmetric), activations (bits, scheme, at, ranges, observer; null: not at all).",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with the training and the development file.")
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="The file whose texts show what activations there are.")
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(help="The file to judge by; else a tenth of --train is held out.")
    ] = None,
    examples: Annotated[
        int, typer.Option(min=1, help="Of each of the two, from all over, at most.")
    ] = 256,
    subsets: Annotated[
        int,
        typer.Option(
            min=0,
            help="Of the training examples, on which it is found how sharp blocks are; 0: not.",
        ),
    ] = 4,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Round each place of a fine-tuned model alone, and see by how much its loss rises.

    Places are all together, every block, every matrix and table, and what every linear layer reads
    and writes. Of blocks it is found how sharp the loss is around them, too.
    """
    from bertwright.compression.quantisation.quantised import Quantised
    from bertwright.compression.quantisation.scan import scan
    from bertwright.compression.quantisation.sharpness import sharpness
    from bertwright.document import table
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.randomness import sample
    from bertwright.recipes.loading import changed
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.fine_tuned import FineTuned

    settings: dict[str, Any] = changed({"kind": "quantised", "activations": {}}, changes or [])
    how = Quantised.of(settings)
    loaded = load(model, "float32")
    if not isinstance(loaded, FineTuned):
        raise UserError(f"{model} is not fine-tuned for a task: run bertwright finetune first")
    _, learned, judged = TaskData(loaded.task, data, train, dev).parts()
    learned, judged = sample(learned, examples), sample(judged, examples)
    lines = {cost.place: cost.as_dict() for cost in scan(loaded, how, learned, judged)}
    for each in sharpness(loaded, learned, subsets):
        lines[f"blocks.{each.block}"] |= each.as_dict()
    if as_json:
        report({"task": loaded.task.name, "places": list(lines.values())}, as_json)
        return
    print(*table(COLUMNS, list(lines.values())), sep="\n")
