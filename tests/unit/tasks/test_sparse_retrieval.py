"""Weights of tokens for retrieval: SPLADE's equations, static queries, and the penalty."""

import math

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.heads.text_vectors import StaticTokenWeights
from bertwright.tasks.outputs import SparseOutput
from bertwright.tasks.outputs.vectors.sparse import inverse_document_frequencies
from bertwright.testing.tasks import check_task
from retrieval_models import DOCUMENTS, QUERIES, retrieval_model
from small_tasks import partners


@pytest.fixture(scope="module")
def sparse(pretrained) -> FineTunedModel:
    return retrieval_model(pretrained("bert"), kind="sparse")


@pytest.fixture(scope="module")
def static(pretrained) -> FineTunedModel:
    return retrieval_model(pretrained("bert"), kind="sparse", queries="static")


@pytest.mark.parametrize("double_log", [False, True])
def test_a_weight_is_the_largest_saturated_logit(pretrained, double_log: bool) -> None:
    source = pretrained("bert")
    model = retrieval_model(source, kind="sparse", double_log=double_log, initial_weights=None)
    weights = model.retrieval_encoder().encode_documents(DOCUMENTS).toarray()
    for text, row in zip(DOCUMENTS, weights, strict=True):
        states = torch.from_numpy(source.encode([text])[0])
        logits = source.model.logits(states)
        expected = torch.stack([torch.log(1 + torch.relu(position)) for position in logits])
        expected = expected.amax(0)
        expected = torch.log(1 + expected) if double_log else expected
        np.testing.assert_allclose(row, expected.detach().numpy(), atol=1e-5)
    assert 0 < (weights > 0).mean() < 1


def test_weights_do_not_depend_on_padding_or_other_texts(sparse: FineTunedModel) -> None:
    encoder = sparse.retrieval_encoder()
    together = encoder.encode_documents(DOCUMENTS)
    alone = [encoder.encode_documents([text]) for text in DOCUMENTS]
    for row, weights in enumerate(alone):
        assert abs(together[row] - weights).max() < 1e-5
    assert encoder.encode_documents([]).shape == (0, encoder.width)


def test_a_score_of_a_static_query_is_the_sum_over_its_tokens(static: FineTunedModel) -> None:
    table = static.task_model.head.classifier
    assert isinstance(table, StaticTokenWeights)
    document = static.retrieval_encoder().encode_documents([DOCUMENTS[0]]).toarray()[0]
    query = "red bird red"
    weights = table.weights.tolist()
    tokens = set(static.tokenizer.encode(query))
    expected = sum(weights[token] * document[token] for token in tokens)
    (prediction,) = static.predict([(query, DOCUMENTS[0])])
    assert prediction.value == pytest.approx(expected, rel=1e-5)
    assert expected > 0


def test_a_static_query_needs_no_encoder(static: FineTunedModel, monkeypatch) -> None:
    encoder = static.retrieval_encoder()
    expected = encoder.encode_queries(QUERIES)
    monkeypatch.setattr(FineTunedModel, "batch_outputs", None)
    assert abs(encoder.encode_queries(QUERIES) - expected).nnz == 0
    with pytest.raises(TypeError):
        encoder.encode_documents(DOCUMENTS)


def test_static_weights_of_training_and_of_encoding_are_equal(static: FineTunedModel) -> None:
    sequences = static.output_decoder.encode(static.example_encoder, partners()[:1])
    outputs = np.concatenate(static.head_outputs(sequences))
    weights = static.token_weights(sequences).toarray()
    np.testing.assert_allclose(outputs, weights, atol=1e-6)


def test_training_starts_with_the_stated_number_of_weights(pretrained) -> None:
    source = pretrained("bert")
    documents = list(dict.fromkeys(text for e in partners() for text in (e.pair, *e.negatives)))
    for count in (3, 20):
        model = retrieval_model(source, kind="sparse", initial_weights=count)
        weights = model.retrieval_encoder().encode_documents(documents)
        assert weights.nnz == pytest.approx(count * len(documents), abs=1)
    before, after = (m.fill_mask("the [MASK] bird")[0] for m in (source, model))
    assert [p.token for p in before] == [p.token for p in after]
    for ours, theirs in zip(before, after, strict=True):
        assert ours.probability == pytest.approx(theirs.probability, rel=1e-4)


def test_static_weights_start_from_inverse_document_frequencies(pretrained) -> None:
    tokenizer = pretrained("bert").tokenizer
    documents = ["red bird", "red red tree", "house"]
    weights = inverse_document_frequencies(tokenizer, documents, tokenizer.vocab_size)
    for word, frequency in (("red", 2), ("house", 1), ("river", 0)):
        (token,) = tokenizer.encode(word)
        odds = (3 - frequency + 0.5) / (frequency + 0.5)
        assert weights[token] == pytest.approx(math.log(1 + odds))


def test_the_penalty_is_flops_with_a_quadratic_warm_up() -> None:
    decoder = SparseOutput(query_penalty=3.0, document_penalty=0.5).build_decoder(())
    outputs = torch.rand(5, 7, generator=torch.Generator().manual_seed(1))
    queries, documents = outputs[[0, 2]], outputs[[1, 3, 4]]

    def flops(weights: torch.Tensor) -> float:
        return sum(
            (sum(float(row[token]) for row in weights) / len(weights)) ** 2 for token in range(7)
        )

    full = 3.0 * flops(queries) + 0.5 * flops(documents)
    for fraction, scale in ((0.0, 0.0), (1 / 6, 1 / 4), (1 / 3, 1.0), (0.9, 1.0)):
        penalty = decoder.penalty(outputs, [2, 3], fraction)
        assert float(penalty) == pytest.approx(scale * full, rel=1e-5)
    static = SparseOutput(queries="static", document_penalty=0.5).build_decoder(())
    assert float(static.penalty(outputs, [2, 3], 1.0)) == pytest.approx(0.5 * flops(documents))


@pytest.mark.parametrize("queries", ["model", "static"])
def test_the_contract_of_a_task_holds(tmp_path, queries: str) -> None:
    from retrieval_models import retrieval_task

    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(f'{{"text": "{e.text}", "pair": "{e.pair}"}}\n' for e in partners()))
    check_task(retrieval_task(kind="sparse", queries=queries), (file, file))


def test_saving_keeps_the_masked_head_and_the_weights(tmp_path, static: FineTunedModel) -> None:
    static.save(tmp_path / "model")
    loaded = load_fine_tuned_model(tmp_path / "model", "float32")
    assert loaded.task == static.task
    for texts in ("encode_queries", "encode_documents"):
        before, after = (
            getattr(model.retrieval_encoder(), texts)(DOCUMENTS) for model in (static, loaded)
        )
        assert abs(before - after).max() < 1e-6
    assert loaded.fill_mask("the [MASK] bird")


@pytest.mark.parametrize("system", ["gpt-2", "electra"])
def test_models_without_a_masked_head_are_refused(pretrained, system: str) -> None:
    if system == "electra":
        source = retrieval_model(pretrained("bert"), kind="late-interaction", dimension=4)
    else:
        source = pretrained(system)
    with pytest.raises(UserError, match="sparse needs"):
        retrieval_model(source, kind="sparse")


def test_margins_are_learned_from_pairs_with_one_negative() -> None:
    decoder = SparseOutput(loss="margin-mse").build_decoder(())
    outputs = torch.rand(6, 4, generator=torch.Generator().manual_seed(2))
    loss, _ = decoder.loss(outputs, [3, 3], torch.tensor([0.5, -1.0]))
    margins = [float(outputs[n] @ outputs[n + 1] - outputs[n] @ outputs[n + 2]) for n in (0, 3)]
    expected = (margins[0] - 0.5) ** 2 + (margins[1] + 1.0) ** 2
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(UserError, match="the loss margin-mse learns the difference"):
        SparseOutput(loss="margin-mse").trainable_examples(partners())
