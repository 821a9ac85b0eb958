"""Effective context: a model that copies what stands a lag behind needs exactly so much."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example

LAG = 4


def texts(number: int = 20, size: int = 20) -> list[Example]:
    """The first words are drawn, and come again and again."""
    generator = np.random.default_rng(0)
    drawn = [generator.choice(WORDS[:15], LAG) for _ in range(number)]
    return [Example(" ".join(np.tile(own, size // LAG))) for own in drawn]


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
def test_the_loss_drops_where_what_is_copied_comes_in_sight(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = small_subject(system)
    case = Case(subject, read_texts(subject, texts()))
    where = "bertwright.analysis.dynamics.effective_context"

    def said(rows: list[list[int]], place: int) -> list[list[float]]:
        first = 1
        knows = [len(own) + place - LAG >= first for own in rows]
        return [[0.0 if known else -3.0] for known in knows]

    monkeypatch.setattr(f"{where}.log_probabilities", lambda _, rows, __: said(rows, -1))
    monkeypatch.setattr(f"{where}.cloze_log_probabilities", lambda _, __, rows, ___: said(rows, -2))
    found = Analysis.choose({"kind": "effective-context", "longest": 16}).run(case)
    told = {finding.metric: finding.value for finding in found.findings}
    assert told["loss given 2 pieces"] == 3
    assert told["loss given 4 pieces"] == 0
    assert told["effective context, pieces"] == LAG


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_the_longest_context_is_what_the_model_itself_says(system: str) -> None:
    subject = small_subject(system)
    case = Case(subject, read_texts(subject, texts(3)))
    found = Analysis.choose({"kind": "effective-context", "longest": 8, "most": 100}).run(case)
    assert found.arrays["contexts"].tolist() == [1, 2, 4, 8]
    assert found.arrays["total"].tolist() == [12, 12, 12]
    assert torch.isfinite(torch.from_numpy(found.arrays["losses"])).all()


def test_short_texts_say_nothing() -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, texts(3)))
    lacks = Analysis.choose("effective-context").lacks(case)
    assert lacks is not None
    assert "more than" in lacks
