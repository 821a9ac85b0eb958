"""Vocabularies with gaps, and embedding tables with unused rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as library
import torch
import transformers
from fastapi.testclient import TestClient

from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.batches.vocabulary import Vocabulary
from bertwright.core.errors import UserError
from bertwright.core.rng import CounterRng
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models.saving import load_model, save_model
from bertwright.models.text_model import TextModel
from bertwright.serving.app import create_app
from bertwright.serving.settings import ServingSettings
from bertwright.training.diagnostics.doctor.data_checks import is_single_character
from bertwright.training.diagnostics.trace.trace import trace_sequence
from bertwright.training.evaluation.held_out import evaluate
from stock_models import WORDPIECE_SPECIALS, saved, stock_model, wordpiece

TEXT = "the ship the [MASK] ship."
NUM_TOKENS = wordpiece().get_vocab_size()
GAP_KINDS = ["duplicate", "gap", "far", "padded"]


def sparse_folder(kind: str, path: Path) -> Path:
    """A stock BERT whose embedding table has unused rows."""
    settings: dict[str, Any] = json.loads(wordpiece().to_str())
    vocabulary: dict[str, int] = settings["model"]["vocab"]
    if kind == "duplicate":
        # The last of two equal lines counts, so the first one is an unused row.
        lines = [*vocabulary, "the", "extra"]
        folder = saved(stock_model("BertForMaskedLM", vocab_size=len(lines)), path)
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
        return folder
    num_rows = NUM_TOKENS
    if kind == "gap":
        vocabulary["ship"] = num_rows + 3
        num_rows += 4
    elif kind == "far":
        vocabulary["<far>"] = num_rows + 300
        token = settings["added_tokens"][-1]
        settings["added_tokens"].append(token | {"id": num_rows + 300, "content": "<far>"})
        num_rows += 340
    model = stock_model("BertForMaskedLM", vocab_size=num_rows)
    if kind == "padded":
        model.resize_token_embeddings(pad_to_multiple_of=64)
        with torch.no_grad():  # the most probable rows
            model.get_output_embeddings().bias[NUM_TOKENS:] = 50.0
    folder = saved(model, path)
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module", params=GAP_KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_folder(request.param, tmp_path_factory.mktemp(request.param) / "stock")


@pytest.fixture(scope="module")
def model(folder: Path) -> TextModel:
    """The folder, imported, saved and loaded again."""
    save_model(folder / "ours", *import_huggingface(folder))
    return TextModel(*load_model(folder / "ours"), "float32")


def stock_logits(folder: Path, text: str) -> tuple[torch.Tensor, transformers.PreTrainedTokenizer]:
    """The logits (V,) of Transformers at the masked position of a text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stock = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        logits = stock(**inputs).logits[0]
    return logits[inputs["input_ids"][0] == tokenizer.mask_token_id][0], tokenizer


def test_ids_equal_the_vocabularys(model: TextModel, folder: Path) -> None:
    tokenizer, stock = model.tokenizer, transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.ids.tolist() == sorted(set(stock.get_vocab().values()))
    assert tokenizer.vocab_size == max(stock.get_vocab().values()) + 1
    assert tokenizer.encode("the ship <far>") == stock.encode(
        "the ship <far>", add_special_tokens=False
    )
    assert tokenizer.unused_ids.isdisjoint(tokenizer.ids.tolist())
    with pytest.raises(IndexError, match="there is no token"):
        tokenizer.id_to_token(tokenizer.vocab_size)


def test_every_token_is_predicted_and_no_unused_row(model: TextModel, folder: Path) -> None:
    """In the order of Transformers, with probabilities that sum to 1."""
    [predictions] = model.fill_mask(TEXT, top_k=100_000)
    logits, stock = stock_logits(folder, TEXT)
    ids = sorted(set(stock.get_vocab().values()))
    expected = torch.softmax(logits[ids].double(), 0)
    assert len(predictions) == len(ids)
    assert sum(prediction.probability for prediction in predictions) == pytest.approx(1, abs=1e-5)
    for prediction in predictions:
        index = ids.index(stock.convert_tokens_to_ids(prediction.token))
        assert prediction.probability == pytest.approx(float(expected[index]), rel=1e-3, abs=1e-7)


def test_scores_and_generation_ignore_unused_rows(model: TextModel) -> None:
    [score] = model.score(["the ship."])
    assert score > -50  # unused rows have a bias of 50
    [continuation] = model.generate("the", max_new_tokens=8, temperature=2.0, seed=3)
    assert continuation.text


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "T5ForConditionalGeneration"])
def test_no_unused_row_is_generated(architecture: str, tmp_path: Path) -> None:
    """By greedy decoding, sampling or beam search, though unused rows are the most probable."""
    stock = stock_model(architecture, bos_token_id=2, eos_token_id=3, pad_token_id=0)
    stock.resize_token_embeddings(pad_to_multiple_of=64 + 8)
    table = stock.get_output_embeddings().weight
    with torch.no_grad():
        table[NUM_TOKENS:] = 30 * torch.randn(len(table) - NUM_TOKENS, table.shape[1])
    folder = saved(stock, tmp_path / "stock", decoder_start_token_id=0)
    model = TextModel(*import_huggingface(folder), "float32")
    assert model.model.vocab_size > model.tokenizer.vocab_size
    settings: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.0, "top_k": 3},
        {"num_beams": 3},
    ]
    for config in settings:
        [continuation] = model.generate(["the ship"], max_new_tokens=6, **config)
        assert all(token_id < NUM_TOKENS for token_id in continuation.token_ids)
        assert np.isfinite(continuation.log_probabilities).all()
    if architecture.startswith("GPT2"):
        assert np.isfinite(model.score(["the ship the ship."])).all()


def test_the_model_is_served(model: TextModel) -> None:
    with TestClient(create_app({"m": model}, ServingSettings())) as client:
        for top_k in (60, 100):
            response = client.post("/fill-mask", json={"inputs": TEXT, "top_k": top_k})
            assert response.status_code == 200, response.text
        predictions = response.json()
    tokens = [prediction["token_str"] for prediction in predictions if isinstance(prediction, dict)]
    assert all(model.tokenizer.token_to_id(token) is not None for token in tokens)


def test_the_export_is_verified_and_imported(
    model: TextModel, folder: Path, tmp_path: Path
) -> None:
    export_huggingface(model.model, model.tokenizer, tmp_path / "export", verify=True)
    assert import_huggingface(tmp_path / "export")[1].ids.tolist() == model.tokenizer.ids.tolist()
    (tmp_path / "export" / "tokenizer.json").unlink()  # vocab.txt alone is equivalent
    imported = import_huggingface(tmp_path / "export")[1]
    if "<far>" not in imported.backend.get_vocab():
        assert imported.ids.tolist() == model.tokenizer.ids.tolist()
        assert imported.encode("the ship") == model.tokenizer.encode("the ship")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert sorted(set(stock.get_vocab().values())) == model.tokenizer.ids.tolist()


def test_preparation_evaluation_and_tracing_work(model: TextModel, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(
        "\n\n".join(["the ship, the ship. " * 9] * 2 + ["a c. " * 9])
    )
    data = prepare(
        tmp_path / "text.txt", tmp_path / "data", model.tokenizer, heldout=0.4, num_workers=1
    )
    assert len(data.token_counts) == model.tokenizer.vocab_size
    assert is_single_character(data.tokenizer)[list(data.tokenizer.unused_ids)].all()
    assert evaluate(model.model, data)["masked_loss"] < 30  # unused rows have a bias of 50
    trace_sequence(model.model.recipe, data, 0, model=model.model, top_k=100_000)


def test_random_tokens_and_sentinels_are_tokens() -> None:
    backend = library.Tokenizer.from_str(wordpiece().to_str())
    settings = json.loads(backend.to_str())
    settings["model"]["vocab"] |= {"far": 200, "off": 203}
    tokenizer = Tokenizer(library.Tokenizer.from_str(json.dumps(settings)))
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    positions = np.arange(20_000)[None]
    for random_from in ("vocabulary", "non-special"):
        sampled = TokenReplacement(random_from=random_from)._random_tokens(
            vocabulary, CounterRng(0), positions
        )
        excludes_special = random_from == "non-special"
        expected = set(tokenizer.ids.tolist()) - (
            tokenizer.special_tokens.all if excludes_special else set()
        )
        assert set(sampled.ravel().tolist()) == expected
    assert vocabulary.token_ids[[-1, -2]].tolist() == [203, 200]


def test_an_id_that_the_library_changes_is_refused(tmp_path: Path) -> None:
    """The library numbers added tokens in order, whatever their file states."""
    folder = saved(stock_model("BertForMaskedLM", vocab_size=300), tmp_path / "stock")
    settings = json.loads((folder / "tokenizer.json").read_text())
    token = settings["added_tokens"][-1]
    settings["added_tokens"].append(token | {"id": 250, "content": "<far>"})
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"'<far>' .*250"):
        import_huggingface(folder)


def test_special_tokens_have_the_first_ids() -> None:
    assert [wordpiece().token_to_id(name) for name in WORDPIECE_SPECIALS] == [0, 1, 2, 3, 4]
