"""``bertwright analyse``: what a model knows, and in which layers and heads."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.options import CompareWithOption, MaxLengthOption, ModelArgument, PluginOption
from bertwright.cli.output import JsonOption, check_output_folder, log, print_result
from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun

if TYPE_CHECKING:
    from bertwright.analysis.core.runner import AnalysisReport

HEAD_IMPORTANCE = "head-importance"
"""The analysis that ranks heads for --keep-heads."""


def analyse(
    model: ModelArgument,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME ...]",
            help="Analyses by name, number (B2) or group (attention, attribution, behaviour, "
            "dynamics, geometry, heads, identifiability, probing, syntax); all by default. "
            "bertwright analyses lists them.",
        ),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            help="Texts, one per line (a pair separated by a tab), CoNLL-U trees, or a "
            "classification task: its folder, or hf:owner/name on the Hub; - for standard input."
        ),
    ] = Path("-"),
    entities: Annotated[
        Path | None,
        typer.Option(
            help="Named-entity tags (IOB2) of the sentences of a CoNLL-U file, for edge-probe."
        ),
    ] = None,
    training_data: Annotated[
        Path | None,
        typer.Option(help="Prepared data that the model was trained on, for novelty."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for findings, plots and the HTML report.",
            callback=check_output_folder,
        ),
    ] = Path("analysis"),
    max_examples: Annotated[int, typer.Option(min=1, help="Read at most N texts.")] = 200,
    max_length: MaxLengthOption = 128,
    compare_with: CompareWithOption = None,
    keep_heads: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="With head-importance: write the heads to keep at "
            "this fraction to kept_heads.json.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run analyses of a model and write a report.

    Every finding has an interval and a baseline and is compared with what was published. Analyses
    that do not apply, or have too little data, say so in one sentence; the rest still run.
    """
    from bertwright.analysis.core.analysis import AnalysisInput
    from bertwright.analysis.core.model import AnalysedModel
    from bertwright.analysis.core.prediction_probe import read_labelled_texts
    from bertwright.analysis.core.report import write_report
    from bertwright.analysis.core.runner import (
        OTHER_MODEL_FOLDER,
        estimate_pass_seconds,
        pair_reports,
        run_analyses,
        select_analyses,
        stored_reports,
    )
    from bertwright.analysis.core.texts import (
        add_entities,
        encode_nonempty_texts,
        read_source_texts,
    )
    from bertwright.data.hub.reference import HubDataset
    from bertwright.data.shards.dataset import Dataset
    from bertwright.interop.loading import load
    from bertwright.runtime.markdown_report import run_provenance

    analyses = select_analyses(names or [])
    if keep_heads is not None and HEAD_IMPORTANCE not in {
        analysis.kind_name() for analysis in analyses
    }:
        raise UserError(
            f"--keep-heads needs the analysis {HEAD_IMPORTANCE}: name it, or the group heads"
        )
    analysed = AnalysedModel(model.resolve().name, load(model, "float32"))
    is_task = data.is_dir() or HubDataset.is_named(data)
    sources = read_labelled_texts(analysed, data) if is_task else read_source_texts(data)
    if entities is not None:
        sources = add_entities(sources, entities)
    sources = sources[:max_examples]
    texts = encode_nonempty_texts(analysed, sources, max_length)
    other = None
    if compare_with is not None:
        other = AnalysedModel(compare_with.resolve().name, load(compare_with, "float32"))
    dataset = None if training_data is None else Dataset.open(training_data)
    inputs = AnalysisInput(analysed, texts, seed, output / "states", other, dataset)
    seconds = estimate_pass_seconds(inputs)
    texts_read = count_noun(len(inputs.texts), "text")
    log(f"analyses: {len(analyses)}, of {texts_read}; {seconds:.0f} s a pass")
    reports, other_inputs = run_analyses(inputs, analyses, output, log), None
    if other is not None:
        other_texts = encode_nonempty_texts(other, sources, max_length)
        other_inputs = AnalysisInput(
            other, other_texts, seed, output / "states", training_data=dataset
        )
        other_reports = run_analyses(other_inputs, analyses, output / OTHER_MODEL_FOLDER, log)
        reports = pair_reports(reports, other_reports)
    all_reports = [*reports, *stored_reports(inputs, analyses, output, other_inputs, log)]
    page = write_report(inputs, all_reports, output, run_provenance())
    if keep_heads is not None:
        report = next(r for r in reports if r.analysis.kind_name() == HEAD_IMPORTANCE)
        if report.not_applicable is not None:
            raise UserError(f"--keep-heads needs {HEAD_IMPORTANCE}: {report.not_applicable}")
        _write_kept_heads(output, keep_heads)
    result = {"analyses": [report.as_dict() for report in reports], "page": str(page)}
    print_result(result, as_json, _report_lines(reports))
    log(f"the report is {page}")


def analyses(as_json: JsonOption = False) -> None:
    """List the available analyses."""
    from bertwright.analysis.core.runner import select_analyses

    known = sorted(
        select_analyses([]), key=lambda a: (a.group, int(a.survey_id[1:]), a.kind_name())
    )
    lines = (f"{a.survey_id:>4}  {a.group:16} {a.kind_name():20} {a.title}" for a in known)
    print_result({"analyses": [analysis.describe() for analysis in known]}, as_json, lines)


def _report_lines(reports: "Sequence[AnalysisReport]") -> Iterator[str]:
    for report in reports:
        number = f"{report.analysis.survey_id:>4}"
        for claim in report.claim_results:
            values = f"{claim.value_text}, compared with {claim.baseline_text}"
            other = report.other_claim_result(claim.claim)
            compared = (
                "" if other is None else f"; other model: {other.verdict}, {other.value_text}"
            )
            yield f"{number}  {claim.verdict_text}; {claim.claim}: {values}{compared}"
        if report.not_applicable is not None:
            yield f"{number}  not applicable: {report.not_applicable}"


def _write_kept_heads(output: Path, fraction: float) -> None:
    """Write the heads to keep, by layer."""
    from bertwright.analysis.core.result import read_result
    from bertwright.compression.pruning.importance import select_most_important
    from bertwright.core.files import write_text

    importances = read_result(output, HEAD_IMPORTANCE).arrays["importances"]
    kept = {"heads": select_most_important(list(importances), 1 - fraction)}
    file = output / "kept_heads.json"
    write_text(file, json.dumps(kept) + "\n")
    log(f"{file} lists {sum(map(len, kept['heads']))} heads to keep")
