"""Attention changes with the prediction kept: uncounted queries; a weak search refutes
nothing."""

import numpy as np
import pytest
import torch

from bertwright.analysis.attention import explanation
from bertwright.analysis.attention.explanation import AttentionExplanation, reachable_queries
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.result import AnalysisFinding, StoredResult
from bertwright.analysis.core.text_prediction import TextPrediction
from bertwright.analysis.core.texts import encode_texts
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from experiments.analyses.models import WORDS, small_model


def classifier(system: str, pooling: str) -> AnalysisInput:
    """Return texts and an untrained classifier that reads one position."""
    generator = np.random.default_rng(0)
    texts = [Example(" ".join(generator.choice(WORDS, 8)), None, "yn"[n % 2]) for n in range(8)]
    head = {"kind": "plain", "pooling": pooling}
    text_model, task = small_model(system).text_model, table_task("classes", Columns())
    run = finetune(text_model, task, train=texts, dev=texts, epochs=0, head=head)
    model = AnalysedModel("c", run.model)
    return AnalysisInput(model, encode_texts(model, texts))


def adversary(inputs: AnalysisInput) -> np.ndarray:
    """Return the changes of attention and prediction, (N, 2)."""
    return AttentionExplanation(num_permutations=1, steps=4).run(inputs).arrays["adversary"]


def test_unread_queries_do_not_count() -> None:
    """The first position of a causal model sees only itself."""
    np.testing.assert_allclose(adversary(classifier("gpt", "first")), 0, atol=1e-9)
    assert (adversary(classifier("gpt", "last"))[:, 0] > 1e-3).all()


def test_queries_of_lower_layers_count_if_they_are_attended_to() -> None:
    causal = torch.ones(1, 2, 4, 4).tril()
    diagonal = torch.eye(4).expand(1, 2, 4, 4)
    read = torch.tensor([False, True, False, False])
    both = torch.tensor([True, True, False, False])
    for layers, expected in (
        ((causal, causal), (both, read)),
        ((causal, diagonal), (read, read)),
        ((causal, causal, diagonal), (both, read, read)),
    ):
        queries = reachable_queries(layers, read)
        assert [query_mask.tolist() for query_mask in queries] == [
            query_mask.tolist() for query_mask in expected
        ]


def test_a_sensitive_prediction_allows_small_attention_changes() -> None:
    inputs = classifier("bert", "first")
    model = inputs.model.text_model
    assert isinstance(model, FineTunedModel)
    with torch.no_grad():
        for name, parameter in model.task_model.named_parameters():
            if name.startswith("head") and parameter.ndim == 2:
                parameter *= 200
            if "attention.output.weight" in name:
                parameter *= 20
    attention_change, prediction_change = adversary(inputs).T
    assert (attention_change > 0).all()
    assert (prediction_change <= AttentionExplanation().max_prediction_change).all()


def test_the_position_that_gets_most_attention_is_removed(monkeypatch) -> None:
    inputs, removed = classifier("bert", "first"), []
    original = explanation.remove_position
    monkeypatch.setattr(explanation, "remove_position", lambda p: removed.append(p) or original(p))
    AttentionExplanation(num_permutations=1, steps=1, max_texts=2).run(inputs)
    expected = []
    for number, text in enumerate(inputs.texts[:2]):
        prediction = TextPrediction.from_text(inputs.model, text, inputs.seed, number)
        for layer in range(prediction.num_layers):
            received = torch.einsum("bhqk->k", prediction.attention[layer])
            expected.append(int(received.argmax()))
    assert removed[::2] == expected
    assert all(a != b for a, b in zip(removed[::2], removed[1::2], strict=True))


@pytest.mark.parametrize(
    ("interval", "verdict"), [((0.2, 0.3), "seen"), ((0.0, 0.01), "undecided")]
)
def test_a_weak_search_refutes_nothing(interval: tuple[float, float], verdict: str) -> None:
    names = (
        "attention change with the prediction kept",
        "prediction change, most attended minus random position",
    )
    findings = [AnalysisFinding(n, np.mean(interval), None, None, interval, 20) for n in names]
    stored = StoredResult({}, [finding.as_dict() for finding in findings], {})
    assert AttentionExplanation().check_claims(stored)[1].verdict == verdict
