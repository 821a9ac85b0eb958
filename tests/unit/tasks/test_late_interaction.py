"""Late interaction: sums of largest products, marks, masks and punctuation."""

import json

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.outputs import LateInteractionOutput
from bertwright.tasks.outputs.vectors.text_vectors import score_matrix
from bertwright.testing.tasks import check_task
from retrieval_models import (
    DOCUMENTS,
    QUERIES,
    bert_with_marks,
    retrieval_model,
    retrieval_task,
)
from small_tasks import partners

SETTINGS = {"kind": "late-interaction", "dimension": 12, "query_length": 9}


@pytest.fixture(scope="module")
def model(pretrained) -> FineTunedModel:
    return retrieval_model(pretrained("bert"), **SETTINGS)


def largest_products(query: np.ndarray, document: np.ndarray) -> float:
    """Return the late interaction of two texts, one pair of vectors at a time."""
    return sum(max(float(a @ b) for b in document) for a in query)


def test_scores_are_sums_of_largest_products(model: FineTunedModel, monkeypatch) -> None:
    monkeypatch.setattr("bertwright.tasks.outputs.vectors.text_vectors.DOCUMENTS_PER_PRODUCT", 2)
    encoder = model.retrieval_encoder()
    queries, documents = encoder.encode_queries(QUERIES), encoder.encode_documents(DOCUMENTS)
    expected = [[largest_products(q, d) for d in documents] for q in queries]
    np.testing.assert_allclose(score_matrix(queries, documents), expected, atol=1e-5)
    pairs = [(query, document) for query in QUERIES for document in DOCUMENTS]
    predictions = [prediction.value for prediction in model.predict(pairs)]
    np.testing.assert_allclose(predictions, np.ravel(expected), atol=1e-5)


def test_scores_in_training_are_those_of_the_vectors(model: FineTunedModel) -> None:
    decoder = model.output_decoder
    sequences = decoder.encode(model.example_encoder, partners()[:3])
    vectors = [outputs[0] for outputs in model.head_outputs(sequences)]
    padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(v) for v in vectors], True)
    kept = [outputs[outputs.any(1)] for outputs in vectors]
    scores = decoder.scores(padded[::3], padded)
    expected = [[largest_products(kept[a], kept[b]) for b in range(9)] for a in range(0, 9, 3)]
    np.testing.assert_allclose(scores.numpy(), expected, atol=1e-5)
    diagonal = decoder.pair_scores(padded[::3], padded[1::3])
    np.testing.assert_allclose(diagonal.numpy(), [row[3 * n + 1] for n, row in enumerate(expected)],
                               atol=1e-5)  # fmt: skip


def test_positions_without_a_vector_are_not_the_largest_product() -> None:
    decoder = LateInteractionOutput().build_decoder(())
    query = torch.tensor([[[-1.0, 0.0], [0.0, 0.0]]])
    document = torch.tensor([[[1.0, 0.0], [0.6, 0.8], [0.0, 0.0]]])
    assert float(decoder.scores(query, document)) == pytest.approx(-0.6)
    assert float(decoder.pair_scores(query, document)) == pytest.approx(-0.6)


def test_every_vector_is_the_projected_state_of_a_token(wordpiece) -> None:
    source = bert_with_marks(wordpiece)
    model = retrieval_model(source, **SETTINGS, document_prefix="")
    weight = model.task_model.head.classifier.weight.detach().numpy()
    for text, vectors in zip(
        DOCUMENTS, model.retrieval_encoder().encode_documents(DOCUMENTS), strict=True
    ):
        states = source.encode([text])[0] @ weight.T
        expected = states / np.linalg.norm(states, axis=1, keepdims=True)
        tokens = [source.tokenizer.id_to_token(token) for token in source.encode_ids([text])[0]]
        is_kept = np.array([token not in set(".,!?") for token in tokens])
        assert is_kept.all() == (text == "house")
        np.testing.assert_allclose(vectors, expected[is_kept], atol=1e-5)


def test_masks_extend_queries_and_have_vectors(model: FineTunedModel) -> None:
    sequences = model.output_decoder.encode_queries(model.example_encoder, QUERIES)
    mask, end = model.tokenizer.special_tokens.mask, model.tokenizer.special_tokens.end
    assert {len(sequence.token_ids) for sequence in sequences} == {9}
    for sequence in sequences:
        stop = sequence.token_ids.index(end)
        assert set(sequence.token_ids[stop + 1 :]) <= {mask}
        assert sequence.positions == tuple(range(9))
    assert all(len(v) == 9 for v in model.retrieval_encoder().encode_queries(QUERIES))


def test_unused_tokens_mark_queries_and_documents(wordpiece) -> None:
    model = retrieval_model(bert_with_marks(wordpiece), **SETTINGS)
    decoder, encoder = model.output_decoder, model.example_encoder
    marks = [model.tokenizer.token_to_id(f"[unused{n}]") for n in range(2)]
    query, document = (
        encode(encoder, ["red bird"])[0].token_ids
        for encode in (decoder.encode_queries, decoder.encode_documents)
    )
    assert [query[1], document[1]] == marks
    assert query[2:4] == document[2:4] == model.tokenizer.encode("red bird")


def test_text_prefixes_are_tokenized_with_the_text(pretrained) -> None:
    model = retrieval_model(
        pretrained("bert"), **SETTINGS, query_prefix="the", document_prefix="old"
    )
    decoder, encoder = model.output_decoder, model.example_encoder
    (query,) = decoder.encode_queries(encoder, ["red bird"])
    (document,) = decoder.encode_documents(encoder, ["red bird"])
    assert query.token_ids[1:4] == model.tokenizer.encode("the red bird")
    assert document.token_ids[1:-1] == model.tokenizer.encode("old red bird")


def test_vectors_do_not_depend_on_padding_or_other_texts(model: FineTunedModel) -> None:
    encoder = model.retrieval_encoder()
    for text, vectors in zip(DOCUMENTS, encoder.encode_documents(DOCUMENTS), strict=True):
        np.testing.assert_allclose(encoder.encode_documents([text])[0], vectors, atol=1e-5)


def test_the_contract_of_a_task_holds(tmp_path) -> None:
    file = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"text": e.text, "pair": e.pair}) for e in partners()]
    file.write_text("\n".join(lines) + "\n")
    check_task(retrieval_task(**SETTINGS), (file, file))


def test_cosine_needs_bounded_scores() -> None:
    with pytest.raises(ValueError, match="cosine needs scores from 0 to 1"):
        LateInteractionOutput(loss="cosine")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adaptation": "frozen"}, "adaptation: .* choose full or lora"),
        ({"perturbation": "freelb"}, "perturbation: .* leave it out"),
        ({"head": "plain"}, "output type late-interaction has its own: leave it out"),
    ],
)
def test_settings_that_do_not_fit_are_refused(pretrained, settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained("bert"), retrieval_task(**SETTINGS), train=partners(), **settings)
