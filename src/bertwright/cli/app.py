"""The ``bertwright`` command: its verbs, and how errors are handled."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

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

Verb = Callable[..., None] | typer.Typer

PANELS: dict[str, dict[str, Verb]] = {
    "Start": {"quickstart": quickstart.quickstart, "doctor": doctor.doctor},
    "Text": {
        "sample": sample.sample,
        "get": get.get,
        "tokenizer": tokenizer.app,
        "prepare": prepare.prepare,
    },
    "Pre-training": {
        "recipes": recipes.app,
        "count": count.count,
        "trace": trace.trace,
        "pretrain": pretrain.pretrain,
        "average": average.average,
    },
    "Fine-tuning": {
        "finetune": finetune.finetune,
        "predict": predict.predict,
        "evaluate": evaluate.evaluate,
        "calibrate": calibrate.calibrate,
        "tune": tune.tune,
        "cross-validate": cross_validate.cross_validate,
        "learning-curve": learning_curve.learning_curve,
        "glue": glue.glue,
        "rerank": rerank.rerank,
    },
    "Use without training": {
        "embed": embed.embed,
        "whiten": whiten.whiten,
        "fill-mask": fill_mask.fill_mask,
        "generate": generate.generate,
        "prompt": prompt.prompt,
        "minimal-pairs": minimal_pairs.minimal_pairs,
    },
    "Analysis": {
        "analyse": analyse.analyse,
        "analyses": analyse.analyses,
        "view": view.view,
        "neighbours": neighbours.neighbours,
    },
    "Compression": {
        "compress": compress.app,
        "pareto": pareto.pareto,
        "sensitivity": sensitivity.sensitivity,
        "static": static.static,
        "vocab": vocab.app,
    },
    "Import, export and serving": {
        "import": import_.import_,
        "export": export.export,
        "serve": serve.serve,
    },
    "Search": {"index": index.index, "search": search.search, "mine": mine.mine},
    "Experiments": {"compare": study.compare, "study": study.app},
}
VERBS_WITHOUT_TORCH = ("get", "prepare", "sample")


class PanelGroup(TyperGroup):
    """A group that lists its commands in the order of the panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return [name for verbs in PANELS.values() for name in verbs]


app = typer.Typer(
    name="bertwright",
    cls=PanelGroup,
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
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """BERT and its family: text in; a trained, fine-tuned, inspected, exported encoder out."""


def _add_verb(name: str, verb: Verb, panel: str) -> None:
    if isinstance(verb, typer.Typer):
        app.add_typer(verb, name=name, rich_help_panel=panel)
    else:
        command = DocumentedCommand if name in VERBS_WITHOUT_TORCH else ComputingCommand
        app.command(name, cls=command, rich_help_panel=panel)(verb)


for _panel, _verbs in PANELS.items():
    for _name, _verb in _verbs.items():
        _add_verb(_name, _verb, _panel)


def main() -> None:
    """Run the command line."""
    run_app(app)
