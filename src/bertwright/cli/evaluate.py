"""``bertwright evaluate``: what a model scores on data that it was not trained on."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder, pre-trained or fine-tuned.")],
    data: Annotated[
        Path,
        typer.Option(
            help="For a pre-trained model a folder that prepare wrote; for a fine-tuned one a file "
            "of its task, or a folder with a development file."
        ),
    ],
    errors: Annotated[
        Path | None,
        typer.Option(
            help="For a fine-tuned model: a JSON lines file of what it got wrong, the surest first."
        ),
    ] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model: on held-out text, or on its task."""
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.files import atomic_file
    from bertwright.interop.loading import load
    from bertwright.tasks import evaluation
    from bertwright.tasks.result_folder import write_lines

    loaded = load(model)
    found = evaluation.evaluate_beside_baselines(loaded, data)
    for sentence in found.get("warnings", ()):
        say(sentence)
    report(found, as_json)
    if errors is not None:
        with atomic_file(errors) as temporary:
            write_lines(temporary, evaluation.errors(loaded, data))
