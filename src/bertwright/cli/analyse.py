"""``bertwright analyse``: what a model knows, and where."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, Document, report, say
from bertwright.cli.plugin import Plugin
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.analysis.checking import Checked


HEADS = "head-importance"
"""By which heads are chosen."""


def analyse(
    model: Annotated[
        Path | None,
        typer.Argument(help="A model folder, ours or Hugging Face's; none with --check."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Analyses by name (attention-shares), number (B2) or group (attention, "
            "attribution, behaviour, dynamics, geometry, heads, identifiability, probing, "
            "syntax); all if none is named.",
        ),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            help="Texts: one on each line, a pair with a tab between; or sentences with their "
            "trees (.conllu). Plain or .gz. Of a model that names classes also a folder of "
            "its task: what it is asked is then judged by the labels."
        ),
    ] = Path("-"),
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder for findings, pictures and the page.")
    ] = Path("analysis"),
    most: Annotated[int, typer.Option(min=1, help="So many texts are read, from the first.")] = 200,
    length: Annotated[int, typer.Option(min=4, help="Places of a row; texts are cut there.")] = 128,
    against: Annotated[
        Path | None,
        typer.Option(help="Another model, such as the one before fine-tuning: asked the same."),
    ] = None,
    prune_to: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="With head-importance: write which heads stay where this share does, to "
            "kept.json in -o.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of whatever is drawn.")] = 0,
    check: Annotated[
        bool,
        typer.Option("--check", help="See that analyses find what was planted; no model."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="With --check: the toy is hardly trained, and asked less."),
    ] = False,
    document: Document = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Ask a model what it knows and where: findings with their intervals and baselines, held
    against what was published, as JSON lines, pictures and one page. Without a model, list what can
    be asked."""
    from bertwright.machine.process import tune_process

    tune_process()
    if check:
        # Without a model all that is named are analyses.
        _check([*([] if model is None else [str(model)]), *(names or [])], quick, as_json)
        return
    if model is None:
        _list(as_json)
        return
    from bertwright.analysis.analysis import Case
    from bertwright.analysis.classifying import labelled_texts
    from bertwright.analysis.reports import write_findings, write_report
    from bertwright.analysis.running import AGAINST, chosen, seconds_of_a_pass, standing, with_other
    from bertwright.analysis.running import analyse as run
    from bertwright.analysis.subject import Subject
    from bertwright.analysis.texts import read_file, worded
    from bertwright.document import origin
    from bertwright.interop.loading import load

    analyses = chosen(names or [])
    if prune_to is not None and HEADS not in {own.own_kind() for own in analyses}:
        raise UserError(f"--prune-to goes by the analysis {HEADS}: name it, or heads")
    subject = Subject(model.resolve().name, load(model, "float32"))
    given = (labelled_texts(subject, data) if data.is_dir() else read_file(data))[:most]
    texts = worded(subject, given, length)
    other = None if against is None else Subject(against.resolve().name, load(against, "float32"))
    case = Case(subject, texts, seed, output / "states", other)
    seconds = seconds_of_a_pass(case)
    say(f"{len(analyses)} analyses of {len(case.texts)} texts; {seconds:.0f} s a pass")
    answered, beside = run(case, analyses, output, say), None
    if other is not None:
        beside = Case(other, worded(other, given, length), seed, output / "states")
        answered = with_other(answered, run(beside, analyses, output / AGAINST, say))
    shown = [*answered, *standing(case, analyses, output, beside, say)]
    page = write_report(case, shown, output, origin())
    if prune_to is not None:
        _write_kept(output, prune_to)
    if document is not None:
        write_findings(case, answered, document)
    if as_json:
        report({"analyses": [own.as_dict() for own in answered], "page": str(page)}, as_json)
        return
    for own in answered:
        for each in own.conclusions:
            held = f"{each.value:.3g} to {each.baseline:.3g} ({each.baseline_name})"
            why = "" if each.lacks is None else f"; {each.lacks}"
            there = own.beside(each.claim)
            last = "" if there is None else f"; there: {there.verdict}, {there.value:.3g}"
            print(f"{own.analysis.number:>4}  {each.verdict:8}  {each.claim}: {held}{why}{last}")
        if own.lacks is not None:
            print(f"{own.analysis.number:>4}  not applicable: {own.lacks}")
    say(f"{page} has it all")


def _write_kept(output: Path, share: float) -> None:
    """Which heads stay, by layer, as ``kept.json``."""
    from bertwright.analysis.findings import read_found
    from bertwright.compression.structure import kept_parts
    from bertwright.files import write_text

    found = read_found(output, HEADS).arrays["importances"]
    kept = {"heads": kept_parts(list(found), 1 - share)}
    write_text(output / "kept.json", json.dumps(kept) + "\n")
    say(f"{output / 'kept.json'} has the {sum(map(len, kept['heads']))} heads that stay")


def _list(as_json: bool) -> None:
    from bertwright.analysis.running import chosen

    known = sorted(chosen([]), key=lambda own: (own.group, int(own.number[1:]), own.own_kind()))
    if as_json:
        report({"analyses": [own.about() for own in known]}, as_json)
        return
    for own in known:
        print(f"{own.number:>4}  {own.group:16} {own.own_kind():20} {own.question}")


def _check(names: Sequence[str], quick: bool, as_json: bool) -> None:
    from bertwright.analysis.checking import check_all
    from bertwright.analysis.running import chosen

    checked: list[Checked] = []
    for each in check_all(chosen(names), quick, say):
        checked.append(each)
        if not as_json:
            print(each, flush=True)
    if as_json:
        report({"analyses": [each.as_dict() for each in checked]}, as_json)
    if not all(each.ok for each in checked):
        raise typer.Exit(1)
