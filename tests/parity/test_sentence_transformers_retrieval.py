"""Models for retrieval give the same in sentence-transformers: its other three model types."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.loading import load
from bertwright.interop.sentence_transformers import SAMPLE_TEXTS, export_sentence_transformers
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs.vectors.late_interaction import largest_products
from bertwright.tasks.outputs.vectors.sparse import flops_penalty
from retrieval_models import bert_with_marks, retrieval_model
from small_tasks import ENGLISH, partners
from toy_recipes import toy

QUERIES, DOCUMENTS = ["the red bird", "a green, old house", "river " * 30], list(SAMPLE_TEXTS)


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    return train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))


def random_model(system: str, tokenizer: Tokenizer) -> TextModel:
    recipe = toy(system, "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")


SPARSE: list[tuple[str, dict[str, Any]]] = [
    ("bert", {}),
    ("modern", {"double_log": True}),
    ("roberta", {"queries": "static"}),
]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize(("system", "settings"), SPARSE)
def test_sparse_encoders(
    tmp_path: Path, wordpiece: Tokenizer, system: str, settings: dict[str, Any]
) -> None:
    from sentence_transformers import SparseEncoder

    model = retrieval_model(random_model(system, wordpiece), kind="sparse", **settings)
    report = export_sentence_transformers(model, tmp_path / "export", verify=True)
    assert report.max_difference is not None
    assert report.max_difference < 1e-5
    stock: Any = SparseEncoder(str(tmp_path / "export"), device="cpu")
    encoder = model.retrieval_encoder()
    queries, documents = encoder.encode_queries(QUERIES), encoder.encode_documents(DOCUMENTS)
    theirs = stock.encode_query(QUERIES), stock.encode_document(DOCUMENTS)
    for ours, weights in zip((queries, documents), theirs, strict=True):
        assert ours.nnz
        np.testing.assert_allclose(ours.toarray(), weights.to_dense().numpy(), atol=1e-5)
    imported = load(tmp_path / "export", "float32").retrieval_encoder()
    assert abs(imported.encode_queries(QUERIES) - queries).max() < 1e-5
    assert abs(imported.encode_documents(DOCUMENTS) - documents).max() < 1e-5
    similarity = stock.similarity(*theirs).to_dense().numpy()
    np.testing.assert_allclose((queries @ documents.T).toarray(), similarity, rtol=1e-4)


def test_static_queries_without_some_tokens_are_imported(
    tmp_path: Path, wordpiece: Tokenizer
) -> None:
    model = retrieval_model(random_model("bert", wordpiece), kind="sparse", queries="static")
    export_sentence_transformers(model, tmp_path / "export")
    (file,) = (tmp_path / "export").glob("query*/model.safetensors")
    weights = {"weight": load_file(file)["weight"]}
    weights["weight"][::2] = 0
    save_file(weights, file)
    imported = load(tmp_path / "export", "float32")
    imported.save(tmp_path / "imported")
    queries = load(tmp_path / "imported", "float32").retrieval_encoder().encode_queries(QUERIES)
    expected = model.retrieval_encoder().encode_queries(QUERIES).toarray()
    expected[:, ::2] = 0
    np.testing.assert_allclose(queries.toarray(), expected, atol=1e-5)
    router = tmp_path / "export" / "router_config.json"
    content = json.loads(router.read_text())
    content["types"].popitem()
    router.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"router_config\.json does not describe its modules"):
        load(tmp_path / "export")


@pytest.mark.parametrize("system", ["bert with marks", "modern", "roberta"])
def test_multi_vector_encoders(tmp_path: Path, wordpiece: Tokenizer, system: str) -> None:
    from sentence_transformers import MultiVectorEncoder

    has_marks = system == "bert with marks"
    source = bert_with_marks(wordpiece) if has_marks else random_model(system, wordpiece)
    prefixes = {} if has_marks else {"query_prefix": "the tree:", "document_prefix": "red"}
    model = retrieval_model(
        source, kind="late-interaction", dimension=12, query_length=11, **prefixes
    )
    report = export_sentence_transformers(model, tmp_path / "export", verify=True)
    assert report.max_difference is not None
    assert report.max_difference < 1e-5
    stock: Any = MultiVectorEncoder(str(tmp_path / "export"), device="cpu")
    encoder = model.retrieval_encoder()
    imported = load(tmp_path / "export", "float32").retrieval_encoder()
    pairs = (
        (encoder.encode_queries(QUERIES), stock.encode_query(QUERIES)),
        (encoder.encode_documents(DOCUMENTS), stock.encode_document(DOCUMENTS)),
    )
    again = imported.encode_queries(QUERIES), imported.encode_documents(DOCUMENTS)
    for (ours, theirs), reloaded in zip(pairs, again, strict=True):
        for vectors, others, same in zip(ours, theirs, reloaded, strict=True):
            np.testing.assert_allclose(vectors, others.numpy(), atol=1e-5)
            np.testing.assert_allclose(vectors, same, atol=1e-5)
    scores = stock.similarity(pairs[0][1], pairs[1][1]).numpy()
    predictions = model.predict([(query, document) for query in QUERIES for document in DOCUMENTS])
    ours = [prediction.value for prediction in predictions]
    np.testing.assert_allclose(ours, scores.ravel(), rtol=1e-4)


@pytest.mark.parametrize(
    ("system", "message"),
    [("mobilebert", "MobileBert reads the padding"), ("xlnet", "XLNet has no class ForMaskedLM")],
)
def test_weights_that_no_stock_class_computes_are_refused(
    tmp_path: Path, wordpiece: Tokenizer, system: str, message: str
) -> None:
    model = retrieval_model(random_model(system, wordpiece), kind="sparse")
    with pytest.raises(UserError, match=message):
        export_sentence_transformers(model, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("system", ["bert", "mobilebert"])
def test_cross_encoders(tmp_path: Path, wordpiece: Tokenizer, system: str) -> None:
    from sentence_transformers import CrossEncoder

    examples = [Example(e.text, e.pair, 1.0) for e in partners()]
    # Two long texts share 20 tokens equally; of 21, stock tokenizers give the second one more.
    settings = {"train": examples, "dev": examples, "epochs": 0, "max_length": 23}
    result = finetune(random_model(system, wordpiece), find_task("rank"), **settings)
    tuned = result.model
    rounded, model = (
        FineTunedModel(tuned.task_model, tuned.tokenizer, tuned.task, 23, precision)
        for precision in ("bf16", "float32")
    )
    export_sentence_transformers(rounded, tmp_path / "export", verify=True)
    stock: Any = CrossEncoder(str(tmp_path / "export"), device="cpu")
    pairs = [(query, document) for query in QUERIES for document in DOCUMENTS]
    ours = [prediction.value for prediction in model.predict(pairs)]
    np.testing.assert_allclose(ours, stock.predict(pairs), atol=1e-5)
    imported = load(tmp_path / "export", "float32")
    assert isinstance(imported, FineTunedModel)
    again = [prediction.value for prediction in imported.predict(pairs)]
    np.testing.assert_allclose(again, ours, atol=1e-5)


def test_losses_are_those_of_sentence_transformers() -> None:
    from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
    from sentence_transformers.sparse_encoder.losses import FlopsLoss
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 6, 20, generator=generator)
    mask = (torch.arange(6) < torch.tensor([6, 2, 4])[:, None]).long()
    features = {"token_embeddings": logits.clone(), "attention_mask": mask}
    pooled = SpladePooling().eval()(features)["sentence_embedding"]
    maxima = logits.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)
    torch.testing.assert_close(torch.log1p(maxima.relu()), pooled)
    flops: Any = FlopsLoss(None)  # type: ignore[arg-type]
    torch.testing.assert_close(flops_penalty(pooled), flops.compute_loss_from_embeddings(pooled))
    queries = torch.nn.functional.normalize(torch.randn(2, 4, 5, generator=generator), dim=-1)
    documents = torch.nn.functional.normalize(torch.randn(3, 6, 5, generator=generator), dim=-1)
    documents = documents * mask[..., None]
    products = torch.einsum("ald,bmd->ablm", queries, documents)
    theirs = colbert_scores(queries, documents[:, None], documents_mask=mask.bool()[:, None])
    torch.testing.assert_close(largest_products(products, documents), theirs)


def test_static_queries_need_as_many_rows_as_tokens(tmp_path: Path, wordpiece: Tokenizer) -> None:
    recipe = toy("bert", "encoder.initialisation={kind: width-aware}")
    network = Model.build(recipe, wordpiece.vocab_size + 3, wordpiece)
    source = TextModel(network, wordpiece, "float32")
    model = retrieval_model(source, kind="sparse", queries="static")
    with pytest.raises(UserError, match="run vocab prune first"):
        export_sentence_transformers(model, tmp_path / "export")
    assert not (tmp_path / "export").exists()
    export_sentence_transformers(
        retrieval_model(source, kind="sparse"), tmp_path / "export", verify=True
    )
