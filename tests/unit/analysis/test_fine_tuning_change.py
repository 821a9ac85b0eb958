"""Changes by training: none in a copy, and changes made by hand."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.report import write_report
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.core.runner import (
    OTHER_MODEL_FOLDER,
    pair_reports,
    run_analyses,
)
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.core.word_states import compute_word_states
from bertwright.analysis.dynamics.model_change import ATTENTION_CHANGE, PARAMETER_CHANGE
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import SENTENCES, small_model


def pair(system: str = "bert") -> AnalysisInput:
    model = small_model(system, "encoder.depth.layers=3")
    twin = AnalysedModel("twin", copy.deepcopy(model.text_model))
    texts = encode_texts(model, [Example(text) for text in SENTENCES])
    return AnalysisInput(model, texts, other_model=twin)


def values_of(result: AnalysisResult, metric: str) -> np.ndarray:
    return np.array([f.value for f in result.findings if f.metric.startswith(metric)])


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_a_copy_has_no_changes(system: str) -> None:
    result = Analysis.parse("change").run(pair(system))
    assert values_of(result, "relative parameter change") == pytest.approx(0)
    assert values_of(result, "cosine of attention") == pytest.approx(1)
    assert values_of(result, "cosine of hidden states") == pytest.approx(1)
    assert values_of(result, "CKA of hidden states") == pytest.approx(1)
    last = {f.metric: f.as_dict()["layer_from_1"] for f in result.findings if f.layer is not None}
    assert set(last.values()) == {3}


def test_a_scaled_layer_changes_by_its_factor() -> None:
    """Changes are relative to the other model, and those of attention are 1 - cosine."""
    inputs, generator = pair(), torch.Generator().manual_seed(0)
    assert inputs.other_model is not None
    encoders = inputs.model.encoder, inputs.other_model.encoder
    with torch.no_grad():
        for parameters in zip(*(e.blocks.parameters() for e in encoders), strict=True):
            values = torch.randn(parameters[0].shape, generator=generator, dtype=torch.float64)
            for parameter in parameters:
                parameter.copy_(values)
        for parameter in encoders[0].blocks[2].parameters():
            parameter.mul_(1.5)
    result = Analysis.parse("change").run(inputs)
    layers = values_of(result, "relative parameter change")
    assert layers[:3].tolist() == pytest.approx([0, 0, 0.5])
    assert values_of(result, PARAMETER_CHANGE) == pytest.approx(0.25)
    (first, second, third), (cosines,) = (
        result.arrays["attention"].mean(1),
        values_of(result, ATTENTION_CHANGE)[None],
    )
    assert (first, second) == pytest.approx((1, 1))
    assert cosines == pytest.approx((1 - third) / 2)
    assert third < 0.999
    states = [
        compute_word_states(replace(inputs, model=model)).states
        for model in (inputs.model, inputs.other_model)
    ]
    expected = torch.cosine_similarity(*(torch.from_numpy(s).double() for s in states), dim=-1)
    assert values_of(result, "cosine of hidden states") == pytest.approx(expected.mean(1).numpy())


def test_two_models_of_the_same_size_are_needed() -> None:
    inputs, analysis = pair(), Analysis.parse("change")
    reason = analysis.not_applicable(replace(inputs, other_model=None))
    assert "--compare-with" in str(reason)
    reason = analysis.not_applicable(replace(inputs, other_model=small_model()))
    assert "same size" in str(reason)


def test_a_report_of_two_models_has_both(tmp_path: Path) -> None:
    inputs = pair()
    assert inputs.other_model is not None
    kinds = ("change", "attention-entropy", {"kind": "agreement", "num_pairs": 5})
    analyses = [Analysis.parse(kind) for kind in kinds]
    reports = run_analyses(inputs, analyses, tmp_path, lambda line: None)
    other_reports = run_analyses(
        AnalysisInput(inputs.other_model, inputs.texts),
        analyses,
        tmp_path / OTHER_MODEL_FOLDER,
        lambda line: None,
    )
    both = pair_reports(reports, other_reports)
    page = write_report(inputs, both, tmp_path, "now").read_text()
    assert "Compared with twin" in page
    assert page.count("<th>twin</th>") == 1
    data = json.loads(json.dumps([report.as_dict() for report in both]))
    assert "not_applicable" in data[0]["other_model"]
    assert data[1]["other_model"]["claims"] == data[1]["claims"]
