"""``bertwright evaluate``: evaluate a model on data that it was not trained on."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.generation_options import GenerationOptions
from bertwright.cli.options import EnsembleOption, ModelArgument, PluginOption, load_predictor
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.task_options import with_options


@with_options
def evaluate(
    model: ModelArgument,
    data: Annotated[
        Path,
        typer.Option(
            help="Prepared data folder (pre-trained model), or a "
            "file of the task or a folder with a "
            "development file (fine-tuned model)."
        ),
    ],
    errors: Annotated[
        Path | None,
        typer.Option(
            help="Write the wrong predictions of a fine-tuned model as JSON lines, the most "
            "confident first."
        ),
    ] = None,
    ensemble: EnsembleOption = None,
    *,
    options: GenerationOptions,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a pre-trained model on held-out text, or a fine-tuned one on its task."""
    from bertwright.core.files import atomic_file
    from bertwright.interop.loading import load
    from bertwright.tasks.evaluation import evaluate as evaluation
    from bertwright.tasks.finetuning.result_folder import write_json_lines

    loaded = load_predictor([model, *ensemble]) if ensemble else load(model)
    options.apply(loaded)
    result = evaluation.evaluate(loaded, data, with_baselines=True)
    for warning in result.get("warnings", ()):
        log(warning)
    print_result(result, as_json)
    if errors is not None:
        with atomic_file(errors) as temporary:
            write_json_lines(temporary, evaluation.prediction_errors(loaded, data))
