"""``bertwright compress``: a fine-tuned model to a small one that does the same."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertwright.cli.finetune import uninterrupted, watching
from bertwright.cli.output import AsJson, Document, Picture, report, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.model.text_model import TextModel
    from bertwright.studies.compression_checks.row import Checked


FOR_A_TASK = (
    "method",
    "data",
    "train",
    "dev",
    "student",
    "transfer",
    "namer",
    "work",
    "seeds",
    "alone",
)
"""Options that say something of fine-tuned models alone."""

FOR_A_MODEL = (*FOR_A_TASK, "layers", "goal")
"""Options that say something of models alone."""


def compress(
    context: typer.Context,
    model: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of a fine-tuned model; without one, list the methods. With --check a "
            "row."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="Settings of fine-tuning for all stages: epochs, rate, batch, dropout, ... With "
            "--check more rows.",
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
        typer.Option(
            min=1,
            help="How many of its layers stay (half; of a --student, or where the "
            "method changes all of them, all).",
        ),
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
    work: Annotated[
        Path | None,
        typer.Option(
            help="A folder that keeps what is made on the way: texts and what the teacher says of "
            "them, the student behind each stage but the last, what was exported for a --goal. A "
            "run that was stopped goes on with them."
        ),
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="What keeps to it and loses least: layers, heads, units and pieces go and numbers "
            "have 8 bits as far as they must (exit code 1 where too much is lost): "
            "size<=25MB, latency<=5ms@1x64 (rows x pieces), loss<=1.0 (points), or some of these."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, for mean and interval.")] = 1,
    alone: Annotated[
        bool, typer.Option("--alone", help="Train the same student without a teacher as well.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="See that methods do what they should, at toy size; no model. Rows whose figures "
            "stand in -o are not asked again.",
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --check: hardly trained, and asked less.")
    ] = False,
    table: Annotated[
        bool,
        typer.Option(
            "--table",
            help="What was published of compressed models beside what is counted here; with -o "
            "timed as well, into that folder.",
        ),
    ] = False,
    picture: Picture = None,
    document: Document = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Let a fine-tuned model teach a smaller one, or be replaced by it, and write the best.

    Of a pre-trained model some --layers are taken: a student for pretrain --teacher.
    """
    from bertwright.machine.process import tune_process

    if check:
        tune_process()
        because = "--check needs no model and no data"
        refuse(context, because, *FOR_A_MODEL, "table")
        # Without a model all that is named are rows.
        rows = [*([] if model is None else [str(model)]), *(changes or [])]
        with uninterrupted():
            _check(rows, quick, output, document, picture, as_json)
        return
    refuse(context, "only --check knows it", "quick", "picture")
    if table:
        refuse(context, "--table needs no model and no data", *FOR_A_MODEL)
        if model is not None:
            raise UserError(f"--table needs no model: leave {model} out")
        _table(output, document, as_json)
        return
    refuse(context, "a document is written by --check and --table", "document")
    from bertwright.compression.method import METHODS, Method, names_in

    if model is None:
        refuse(context, "no model is named, so that methods are listed", *FOR_A_MODEL, "output")
        methods = {name: Method.load(name) for name in names_in(METHODS)}
        report({name: f"{own.about} ({own.source})" for name, own in methods.items()}, as_json)
        return
    tune_process()
    from bertwright.compression.compressing import compress as compressed
    from bertwright.compression.transfer import InFile
    from bertwright.files import require_free
    from bertwright.interop.loading import load
    from bertwright.recipes.loading import changed
    from bertwright.shipping.goal import Goal
    from bertwright.shipping.page import lines
    from bertwright.shipping.shipping import Shipment
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.fine_tuned import FineTuned

    if output is None:
        raise UserError("compress writes a folder: name it with -o")
    require_free(output)
    method = method or "output-distillation"
    how = Method.load(method)
    if namer is not None and not how.asks_namer:
        raise UserError(f"{method} changes no texts by a model that names words: leave --namer out")
    if how.reads_transfer and transfer is None:
        say(f"no --transfer is given: {method} asks its teacher of the texts of the task instead")
    wanted = None if goal is None else Goal.of(goal)
    teacher = load(model)
    if not isinstance(teacher, FineTuned):
        if layers is None:
            raise UserError(
                f"{model} is not fine-tuned for a task: run bertwright finetune first, or say how "
                f"many --layers of it to take"
            )
        because = f"{model} is not fine-tuned: its layers alone can be taken"
        refuse(context, because, *FOR_A_TASK, "goal")
        if changes:
            raise UserError(f"{because}: leave {changes[0]} out")
        report(_taken(teacher, layers, output), as_json)
        return
    settings: dict[str, Any] = changed({}, changes or [])
    given = TaskData(teacher.task, data, train, dev)
    if wanted is not None:
        because = "--goal plans by itself"
        refuse(context, because, "layers", "student", "transfer", "namer", "seeds", "alone")
        with uninterrupted():
            shipment = Shipment(teacher, wanted, given, method, say, settings, work)
            shipped = shipment.ship(output)
        if as_json:
            report(shipped, as_json)
        else:
            print(*lines(shipped), sep="\n")
        if not shipped["kept"]:
            missed = "; ".join(shipped["missed"])
            say(f"bertwright: the goal is not kept ({missed}): what came nearest is in {output}")
            raise typer.Exit(1)
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
            work=work,
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
    return {
        "model": str(output),
        "layers": [block + 1 for block in which],
        "parameters": after,
        "smaller": before / after,
    }


def _check(
    names: list[str],
    quick: bool,
    output: Path | None,
    document: Path | None,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Every row of the survey, or some."""
    from bertwright.studies.compression_checks.checking import check_all
    from bertwright.studies.compression_checks.page import draw, write_checks
    from bertwright.studies.compression_checks.rows import chosen

    checked: list[Checked] = []
    for each in check_all(chosen(names), quick, say, output):
        checked.append(each)
        if not as_json:
            print(each, flush=True)
    if document is not None:
        write_checks(checked, document)
    if picture is not None:
        draw(checked, picture)
    if as_json:
        report({"rows": [each.as_dict() for each in checked]}, as_json)
    if not all(each.ok for each in checked):
        raise typer.Exit(1)


def _table(output: Path | None, document: Path | None, as_json: bool) -> None:
    """What was published, what is counted, and what was timed here."""
    from bertwright.document import table
    from bertwright.studies.compression_table.page import COLUMNS, rows, write_table
    from bertwright.studies.compression_table.published import published
    from bertwright.studies.compression_table.timing import time_all

    if output is not None:
        time_all(published(), output, say)
    found = rows(output)
    if document is not None:
        write_table(found, document)
    if as_json:
        report({"rows": found}, as_json)
        return
    print(*table(COLUMNS, found), sep="\n")
