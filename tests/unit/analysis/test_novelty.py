"""Novelty of generated text: counts of n-grams, prompts, files, and what is not applicable."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertwright.analysis.behaviour.novelty import DIFFERENCE, GENERATED, REAL, novel_counts
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.result import read_result
from bertwright.analysis.core.runner import run_analyses
from bertwright.analysis.core.texts import encode_texts
from bertwright.data.shards.dataset import Dataset
from bertwright.tasks.formats.examples import Example
from experiments.analyses.expectations.generation import NOVELTY
from experiments.analyses.models import WORDS, small_model
from experiments.analyses.writers import prepare_chains, scripted_inputs, shuffled_texts


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare_chains(tmp_path_factory.mktemp("novelty"))


def test_an_ngram_is_novel_if_the_longest_match_is_shorter() -> None:
    lengths = [np.array([3, 2, 1, 0, 1]), np.array([1])]
    expected = {1: ([1, 0], [5, 1]), 2: ([2, 0], [4, 0]), 3: ([2, 0], [3, 0]), 5: ([1, 0], [1, 0])}
    for n, (novel, totals) in expected.items():
        counts = novel_counts(lengths, n)
        assert (counts[0].tolist(), counts[1].tolist()) == (novel, totals)


def test_a_model_continues_the_beginning_of_every_text(data: Dataset, tmp_path: Path) -> None:
    model = small_model("gpt-2")
    texts = encode_texts(model, [Example(text) for text in [*shuffled_texts(6), "the lamp"]])
    inputs = AnalysisInput(model, texts, training_data=data)
    (report,) = run_analyses(inputs, [NOVELTY], tmp_path, lambda line: None)
    assert [claim.num_units for claim in report.claim_results] == [6, 6]
    stored = read_result(tmp_path, "novelty")
    assert stored.metadata["training_data_hash"] == data.manifest.hash
    values = {f["metric"]: f["value"] for f in stored.findings}
    metrics = [m.removesuffix(DIFFERENCE) for m in values if m.endswith(DIFFERENCE)]
    differences = [values[m + GENERATED] - values[m + REAL] for m in metrics]
    assert any(differences)
    assert [values[m + DIFFERENCE] for m in metrics] == pytest.approx(differences)
    assert (tmp_path / "novelty.png").stat().st_size > 1000


def test_missing_data_and_models_are_stated(data: Dataset) -> None:
    inputs = scripted_inputs(data, [" ".join(WORDS[:20])] * 2, lambda n: [5])
    assert NOVELTY.not_applicable(inputs) is None
    for changed, expected in (
        (replace(inputs, training_data=None), "--training-data"),
        (replace(inputs, model=small_model()), "from left to right"),
        (replace(inputs, model=small_model("gpt-2", words=WORDS[:20])), "another tokenizer"),
        (replace(inputs, texts=encode_texts(inputs.model, [Example("the lamp")])), "20 tokens"),
    ):
        assert expected in str(NOVELTY.not_applicable(changed))
