"""The contract of an analysis."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisResult, StoredResult, read_result
from bertwright.analysis.core.runner import run_analyses
from bertwright.analysis.core.texts import SourceText, encode_nonempty_texts
from bertwright.tasks.formats.examples import Example
from bertwright.testing.laws import failing_with, require
from bertwright.testing.toy import toy_text_model

TEXTS = (
    "the old keeper lights the lamp .",
    "a ship leaves .",
    "the small boat , near the river , finds the light .",
    "wind takes the bright red tree .",
    "the keeper sees a ship , a boat , a tree .",
    "the lamp finds the wind .",
)


def check_analysis(
    analysis: Analysis | str, *overrides: str, inputs: AnalysisInput | None = None
) -> None:
    """Check the requirements of an analysis.

    It has a title, a group, a number and a source. It applies to the inputs and returns results;
    all values and intervals are finite, and equal in a second run. Its result is unchanged after
    writing and reading, and is enough for its claims and its plot. The claims are JSON.

    ``inputs`` are by default six sentences and an untrained BERT of toy size, changed by
    ``overrides``. An analysis of trees or of long texts needs others, such as those of
    ``toy_analysis_input``. Errors: AssertionError with one sentence.
    """
    kind = analysis if isinstance(analysis, str) else analysis.kind_name()
    with failing_with(f"analysis {kind}"):
        parsed = Analysis.parse(analysis)
        for key, value in parsed.describe().items():
            require(bool(value.strip()), f"its {key} is empty")
        inputs = inputs or toy_analysis_input(*overrides)
        reason = parsed.not_applicable(inputs)
        require(reason is None, f"analysis {kind} does not apply to these inputs: {reason}")
        result = parsed.run(inputs)
        require(len(result.findings) > 0, f"analysis {kind} has no findings")
        _check_values(kind, result)
        with TemporaryDirectory() as folder:
            (report,) = run_analyses(inputs, [parsed], Path(folder), lambda line: None)
            stored = read_result(Path(folder), kind)
        _check_same(kind, result, stored)
        json.dumps(report.as_dict(), allow_nan=False)


def toy_analysis_input(*overrides: str, texts: Sequence[str | SourceText] = TEXTS) -> AnalysisInput:
    """Return texts and two untrained models of toy size with one token per word."""
    sources = [Example(text) if isinstance(text, str) else text for text in texts]
    lines = [
        " ".join([source.text, source.pair or ""] if isinstance(source, Example) else source.words)
        for source in sources
    ]
    model, other_model = (
        AnalysedModel(
            f"toy-{seed}", toy_text_model(lines, f"seed={seed}", *overrides, kind="words")
        )
        for seed in (0, 1)
    )
    encoded = encode_nonempty_texts(model, sources)
    return AnalysisInput(model, encoded, other_model=other_model)


def _check_values(kind: str, result: AnalysisResult) -> None:
    for finding in result.findings:
        bounds = [
            bound
            for interval in (finding.interval, finding.difference_interval)
            for bound in interval or ()
        ]
        baseline = [] if finding.baseline is None else [finding.baseline.value]
        p_values = [p for p in (finding.p_value, finding.adjusted_p_value) if p is not None]
        for value in (finding.value, *bounds, *baseline, *p_values):
            require(math.isfinite(value), f"{finding.metric} has the value {value}")
        require(
            all(0 <= p <= 1 for p in p_values), f"{finding.metric} has a p-value outside 0 to 1"
        )


def _check_same(kind: str, result: AnalysisResult, stored: StoredResult) -> None:
    """Check that a second run, after writing and reading, equals the first."""
    findings = [json.loads(json.dumps(finding.as_dict())) for finding in result.findings]
    for finding, other in zip(findings, stored.findings, strict=True):
        require(finding == other, f"{finding['metric']} changes from run to run, or in its file")
    require(
        result.arrays.keys() == stored.arrays.keys(), "its file holds other arrays than its result"
    )
    for name, array in result.arrays.items():
        require(
            np.array_equal(
                np.asarray(array), stored.arrays[name], equal_nan=array.dtype.kind == "f"
            ),
            f"the array {name} changes from run to run, or in its file",
        )
