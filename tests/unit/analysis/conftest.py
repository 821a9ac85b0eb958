"""All analyses of one small model, run once."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
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
    """All analyses of an untrained model on a few sentences, and the folder of their results."""

    inputs: AnalysisInput
    reports: list[AnalysisReport]
    folder: Path


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))
    folder = tmp_path_factory.mktemp("analyses")
    analyses = [
        Analysis.parse({"kind": one.kind_name(), **FEW_STORIES.get(one.kind_name(), {})})
        for one in select_analyses([])
    ]
    reports = run_analyses(inputs, analyses, folder, lambda line: None)
    return SmallRun(inputs, reports, folder)
