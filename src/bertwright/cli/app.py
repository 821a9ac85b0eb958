"""The ``bertwright`` command: its verbs, and how errors are handled."""

from collections.abc import Callable
from typing import Annotated

import typer

from bertwright import __version__
from bertwright.cli.errors import run_app
from bertwright.cli.options import ComputingCommand, DocumentedCommand
from bertwright.cli.verbs.analysis import analyse, neighbours, view
from bertwright.cli.verbs.compression import compress, pareto, sensitivity, static, vocab, whiten
from bertwright.cli.verbs.data import get, prepare, sample, tokenizer
from bertwright.cli.verbs.interop import export, import_
from bertwright.cli.verbs.models import embed, fill_mask, generate, minimal_pairs
from bertwright.cli.verbs.recipes import count, recipes
from bertwright.cli.verbs.retrieval import index, mine, search
from bertwright.cli.verbs.serving import serve
from bertwright.cli.verbs.studies import quickstart, study
from bertwright.cli.verbs.tasks import (
    calibrate,
    cross_validate,
    evaluate,
    finetune,
    glue,
    learning_curve,
    predict,
    prompt,
    tune,
)
from bertwright.cli.verbs.training import average, doctor, pretrain, rerank, trace

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


VERBS: dict[str, Callable[..., None]] = {
    "analyse": analyse.analyse,
    "analyses": analyse.analyses,
    "average": average.average,
    "calibrate": calibrate.calibrate,
    "compare": study.compare,
    "count": count.count,
    "cross-validate": cross_validate.cross_validate,
    "doctor": doctor.doctor,
    "embed": embed.embed,
    "evaluate": evaluate.evaluate,
    "export": export.export,
    "fill-mask": fill_mask.fill_mask,
    "finetune": finetune.finetune,
    "generate": generate.generate,
    "get": get.get,
    "glue": glue.glue,
    "import": import_.import_,
    "index": index.index,
    "learning-curve": learning_curve.learning_curve,
    "mine": mine.mine,
    "minimal-pairs": minimal_pairs.minimal_pairs,
    "neighbours": neighbours.neighbours,
    "pareto": pareto.pareto,
    "predict": predict.predict,
    "prepare": prepare.prepare,
    "pretrain": pretrain.pretrain,
    "prompt": prompt.prompt,
    "quickstart": quickstart.quickstart,
    "rerank": rerank.rerank,
    "sample": sample.sample,
    "search": search.search,
    "sensitivity": sensitivity.sensitivity,
    "serve": serve.serve,
    "static": static.static,
    "trace": trace.trace,
    "tune": tune.tune,
    "view": view.view,
    "whiten": whiten.whiten,
}
VERBS_WITHOUT_TORCH = ("get", "prepare", "sample")

for _name, _verb in VERBS.items():
    app.command(_name, cls=DocumentedCommand if _name in VERBS_WITHOUT_TORCH else ComputingCommand)(
        _verb
    )
for _name, _group in {
    "compress": compress.app,
    "recipes": recipes.app,
    "study": study.app,
    "tokenizer": tokenizer.app,
    "vocab": vocab.app,
}.items():
    app.add_typer(_group, name=_name)


def main() -> None:
    """Run the command line."""
    run_app(app)
