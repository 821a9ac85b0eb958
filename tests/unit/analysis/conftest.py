"""Analyses of one small model, each run once."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.result import StoredResult, read_result
from bertwright.analysis.core.runner import AnalysisReport, run_analyses, select_analyses
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import SENTENCES, small_model

FEW_STORIES = {
    "coreference-names": {"num_stories": 20, "num_alternatives": 2},
    "coreference-probe": {"num_stories": 20, "num_seeds": 2, "epochs": 1},
}
"""Settings of analyses with many sentences of their own."""


@dataclass(frozen=True)
class SmallRun:
    """Analyses of an untrained model on a few sentences, which run when they are needed."""

    inputs: AnalysisInput
    folder: Path

    def reports(self, *kinds: str) -> list[AnalysisReport]:
        """Return the reports of some analyses, or of all; results in the folder are reused."""
        analyses = [
            Analysis.parse({"kind": one.kind_name(), **FEW_STORIES.get(one.kind_name(), {})})
            for one in select_analyses(kinds)
        ]
        return run_analyses(self.inputs, analyses, self.folder, lambda line: None)

    def result(self, kind: str) -> StoredResult:
        """Return the stored result of an analysis."""
        self.reports(kind)
        return read_result(self.folder, kind)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))
    return SmallRun(inputs, tmp_path_factory.mktemp("analyses"))
