"""What training has changed: nothing in a copy, and what was changed by hand."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.findings import Found
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.reports import write_report
from bertwright.analysis.running import AGAINST, analyse, chosen, with_other
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def pair(system: str = "bert") -> Case:
    subject = small_subject(system, "encoder.depth.layers=3")
    twin = Subject("twin", copy.deepcopy(subject.text_model))
    texts = read_texts(subject, [Example(text) for text in SENTENCES])
    return Case(subject, texts, other=twin)


def layers_of(found: Found, metric: str) -> np.ndarray:
    return np.array([own.value for own in found.findings if own.metric.startswith(metric)])


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_a_copy_has_changed_in_nothing(system: str) -> None:
    found = Analysis.choose("change").run(pair(system))
    assert layers_of(found, "change of parameters") == pytest.approx(0)
    assert layers_of(found, "cosine of attention") == pytest.approx(1)
    assert layers_of(found, "cosine of states") == pytest.approx(1)
    assert layers_of(found, "likeness") == pytest.approx(1)
    by_layer = [own.as_dict() for own in found.findings if own.layer is not None]
    last = {told["metric"]: told["layer_from_1"] for told in by_layer}
    assert set(last.values()) == {3}


def test_alone_or_beside_another_vocabulary_there_is_nothing_to_compare() -> None:
    case, choice = pair(), Analysis.choose("change")
    assert "--against" in str(choice.lacks(replace(case, other=None)))
    assert "one size" in str(choice.lacks(replace(case, other=small_subject())))


def test_a_report_of_two_models_has_both(tmp_path: Path) -> None:
    case = pair()
    assert case.other is not None
    analyses = chosen(["change", "attention-entropy", "agreement"])
    answered = analyse(case, analyses, tmp_path, lambda line: None)
    beside = analyse(Case(case.other, case.texts), analyses, tmp_path / AGAINST, lambda line: None)
    both = with_other(answered, beside)
    page = write_report(case, both, tmp_path, "now").read_text()
    assert "Held against twin" in page
    assert page.count("<th>twin</th>") == 1
    told = json.loads(json.dumps([own.as_dict() for own in both]))
    assert "not_applicable" in told[0]["against"]
    assert told[1]["against"]["conclusions"] == told[1]["conclusions"]
