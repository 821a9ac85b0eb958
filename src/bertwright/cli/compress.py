"""``bertwright compress``: a fine-tuned model to a small one that does the same."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertwright.cli.finetune import uninterrupted, watching
from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse

if TYPE_CHECKING:
    from bertwright.model.text_model import TextModel


FOR_A_TASK = (
    "method",
    "data",
    "train",
    "dev",
    "student",
    "transfer",
    "namer",
    "answers",
    "seeds",
    "alone",
)
"""Options that say something of fine-tuned models alone."""


def compress(
    context: typer.Context,
    model: Annotated[
        Path | None,
        typer.Argument(help="The folder of a fine-tuned model; without one, list the methods."),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="Settings of fine-tuning for all stages: epochs, rate, batch, dropout, ...",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="By name, or a YAML file of one's own (output-distillation)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder to write.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with the training and the development file.")
    ] = None,
    train: Annotated[Path | None, typer.Option(help="The file to train on.")] = None,
    dev: Annotated[
        Path | None, typer.Option(help="The file to judge by; else a tenth of --train is held out.")
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="A pre-trained model that becomes small, else the fine-tuned one; or a recipe, by "
            "which one begins from nothing."
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(min=1, help="How many of its layers stay (half; of a --student all)."),
    ] = None,
    transfer: Annotated[
        Path | None,
        typer.Option(help="Texts without labels: .txt, .jsonl, or as the task is read."),
    ] = None,
    namer: Annotated[
        Path | None,
        typer.Option(
            help="A pre-trained model that names hidden words, for methods that change texts "
            "(--student)."
        ),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option(
            help="A folder that keeps the texts which the teacher answers, and what it says: a run "
            "that was stopped goes on with them."
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="The largest that keeps to it, as weights or in 8 bits: "
            "size<=25MB, latency<=5ms@1x64 (rows x pieces), loss<=1.0 (points), or some of these."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, for mean and interval.")] = 1,
    alone: Annotated[
        bool, typer.Option("--alone", help="Train the same student without a teacher as well.")
    ] = False,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Let a fine-tuned model teach a smaller one, or be replaced by it, and write the best.

    Of a pre-trained model some --layers are taken: a student for pretrain --teacher.
    """
    from bertwright.compression.method import METHODS, Method, names_in

    if model is None:
        report({name: Method.load(name).about for name in names_in(METHODS)}, as_json)
        return
    from bertwright.machine import tune_allocator

    tune_allocator()
    from bertwright.compression.compressing import compress as compressed
    from bertwright.compression.transfer import InFile
    from bertwright.errors import UserError
    from bertwright.files import require_free
    from bertwright.interop.loading import load
    from bertwright.recipes.loading import changed
    from bertwright.shipping.goal import Goal
    from bertwright.shipping.shipping import Shipment
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.fine_tuned import FineTuned

    if output is None:
        raise UserError("compress writes a folder: name it with -o")
    require_free(output)
    method = method or "output-distillation"
    Method.load(method)
    wanted = None if goal is None else Goal.of(goal)
    teacher = load(model)
    if not isinstance(teacher, FineTuned):
        if layers is None:
            raise UserError(
                f"{model} is not fine-tuned for a task: run bertwright finetune first, or say how "
                f"many --layers of it to take"
            )
        because = f"{model} is not fine-tuned: its layers alone can be taken"
        refuse(context, because, *FOR_A_TASK)
        report(_taken(teacher, layers, output), as_json)
        return
    settings: dict[str, Any] = changed({}, changes or [])
    given = TaskData(teacher.task, data, train, dev)
    if wanted is not None:
        because = "--goal plans by itself"
        refuse(
            context, because, "layers", "student", "transfer", "namer", "answers", "seeds", "alone"
        )
        with uninterrupted():
            shipment = Shipment(teacher, wanted, given, method, say, settings)
            report(shipment.ship(output), as_json)
        return
    with uninterrupted():
        found = compressed(
            teacher,
            method,
            given,
            student=load(Path(student)) if student and Path(student).is_dir() else student,
            layers=layers,
            transfer=None if transfer is None else InFile(transfer, teacher.task),
            namer=None if namer is None else load(namer),
            answers=answers,
            seeds=seeds,
            alone=alone,
            out=output,
            watch=watching(seeds > 1),
            settings=settings,
        )
    report(found.as_dict(), as_json)


def _taken(model: "TextModel", layers: int, output: Path) -> dict[str, Any]:
    """Write some layers of a pre-trained model, evenly from the first to the last."""
    from bertwright.compression.students import layers_taken, shortened
    from bertwright.files import atomic_folder

    which = layers_taken(layers, len(model.model.encoder.blocks))
    small = shortened(model, which)
    with atomic_folder(output) as folder:
        small.save(folder)
    sizes = (sum(p.numel() for p in each.model.parameters()) for each in (model, small))
    before, after = sizes
    return {"model": str(output), "layers": which, "parameters": after, "smaller": before / after}
