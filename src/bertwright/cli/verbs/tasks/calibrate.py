"""``bertwright calibrate``: calibrate prediction sets and abstention of a fine-tuned model."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.options import PluginOption, PrecisionOption, load_fine_tuned
from bertwright.cli.output import JsonOption, print_result


def calibrate(
    model: Annotated[Path, typer.Argument(help="Fine-tuned model folder; its task.json changes.")],
    data: Annotated[
        Path,
        typer.Option(
            help="Labelled file that neither training nor model selection used, or a folder with a "
            "development file."
        ),
    ],
    method: Annotated[
        Literal["lac", "aps"],
        typer.Option(
            help="Sets of classes: lac are the smallest on average and may be empty; aps adapt to "
            "the text and are never empty."
        ),
    ] = "lac",
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate a model, so that predict --coverage and --abstain-above keep what they say.

    The guarantee is for texts like those of the file: exchangeable with them.
    """
    from bertwright.core.errors import UserError
    from bertwright.core.files import write_text
    from bertwright.data.hub.reference import HubReference
    from bertwright.models.saving import TASK_FILE
    from bertwright.tasks.conformal.calibration import calibration_summary, labelled_scores
    from bertwright.tasks.evaluation.evaluate import task_examples

    if not model.exists() and HubReference.parse(model) is not None:
        raise UserError(
            f"{model} is no folder, and calibrate changes the folder of a model: download {model} "
            f"into one first"
        )
    if not (model / TASK_FILE).is_file():
        raise UserError(
            f"{model} has no {TASK_FILE}, into which calibrate writes: name a model folder of "
            f"finetune, or convert a Hugging Face folder with 'bertwright import {model} -o DIR'"
        )
    loaded = load_fine_tuned(model, precision, needs_head_for="calibrate")
    scores = labelled_scores(loaded, task_examples(loaded.task, data), method)
    loaded.conformal = scores.calibrate()
    write_text(model / TASK_FILE, loaded.task_metadata_json())
    print_result(
        {"task": loaded.task.name, **calibration_summary(loaded.conformal, scores)}, as_json
    )
