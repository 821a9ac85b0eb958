"""The ``bertwright`` command: the list of its verbs and what happens to an error."""

from typing import Annotated

import typer

from bertwright import __version__
from bertwright.cli.errors import run_app
from bertwright.cli.verbs import (
    analyse,
    average,
    compress,
    count,
    cross_validate,
    doctor,
    embed,
    evaluate,
    export,
    fill_mask,
    finetune,
    generate,
    get,
    glue,
    import_,
    learning_curve,
    minimal_pairs,
    pareto,
    predict,
    prepare,
    pretrain,
    prompt,
    quickstart,
    recipes,
    sample,
    search,
    sensitivity,
    serve,
    static,
    study,
    tokenizer,
    trace,
    trim,
    view,
)

app = typer.Typer(
    name="bertwright",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


@app.callback()
def bertwright(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """BERT and its family: text in; a trained, fine-tuned, inspected, exported encoder out."""


app.add_typer(compress.app, name="compress")
app.add_typer(recipes.app, name="recipes")
app.add_typer(study.app, name="study")
app.add_typer(tokenizer.app, name="tokenizer")
app.command("analyse")(analyse.analyse)
app.command("analyses")(analyse.analyses)
app.command("average")(average.average)
app.command("compare")(study.compare)
app.command("count")(count.count)
app.command("cross-validate")(cross_validate.cross_validate)
app.command("doctor")(doctor.doctor)
app.command("embed")(embed.embed)
app.command("evaluate")(evaluate.evaluate)
app.command("export")(export.export)
app.command("fill-mask")(fill_mask.fill_mask)
app.command("finetune")(finetune.finetune)
app.command("pareto")(pareto.pareto)
app.command("generate")(generate.generate)
app.command("get")(get.get)
app.command("glue")(glue.glue)
app.command("import")(import_.import_)
app.command("learning-curve")(learning_curve.learning_curve)
app.command("minimal-pairs")(minimal_pairs.minimal_pairs)
app.command("predict")(predict.predict)
app.command("prepare")(prepare.prepare)
app.command("pretrain")(pretrain.pretrain)
app.command("prompt")(prompt.prompt)
app.command("quickstart")(quickstart.quickstart)
app.command("sample")(sample.sample)
app.command("search")(search.search)
app.command("sensitivity")(sensitivity.sensitivity)
app.command("serve")(serve.serve)
app.command("static")(static.static)
app.command("trace")(trace.trace)
app.command("trim")(trim.trim)
app.command("view")(view.view)


def main() -> None:
    """Run one verb."""
    run_app(app)
