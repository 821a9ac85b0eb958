"""Vocabularies with gaps, and tables with rows that stand for no token."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as library
import torch
import transformers
from fastapi.testclient import TestClient
from stock import WORDPIECE_SPECIALS, saved, stock_model, wordpiece

from bertwright.errors import UserError
from bertwright.examples.corruption import Replace
from bertwright.examples.vocabulary import Vocabulary
from bertwright.interop.huggingface import export_folder, import_folder
from bertwright.model.folder import load_model, save_model
from bertwright.model.text_model import TextModel
from bertwright.randomness import Draw
from bertwright.serving.application import application
from bertwright.serving.settings import Settings
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import Tokenizer
from bertwright.training.doctor.data_checks import letters
from bertwright.training.evaluation import evaluate
from bertwright.training.tracing import trace

TEXT = "the ship the [MASK] ship."
NUM_TOKENS = wordpiece().get_vocab_size()
KINDS = ["duplicate", "gap", "far", "padded"]


def sparse_folder(kind: str, path: Path) -> Path:
    """A stock BERT whose table has rows without a token."""
    settings: dict[str, Any] = json.loads(wordpiece().to_str())
    vocabulary: dict[str, int] = settings["model"]["vocab"]
    if kind == "duplicate":
        # Of two equal lines the last one counts: the first is a row without a token.
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
        with torch.no_grad():  # the likeliest of all
            model.get_output_embeddings().bias[NUM_TOKENS:] = 50.0
    folder = saved(model, path)
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sparse_folder(request.param, tmp_path_factory.mktemp(request.param) / "stock")


@pytest.fixture(scope="module")
def model(folder: Path) -> TextModel:
    """The folder, imported, saved and loaded again."""
    save_model(folder / "ours", *import_folder(folder))
    return TextModel(*load_model(folder / "ours"), "float32")


def stock_logits(folder: Path, text: str) -> tuple[torch.Tensor, transformers.PreTrainedTokenizer]:
    """The logits (V,) at the masked position of a text, by Transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stock = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        logits = stock(**inputs).logits[0]
    return logits[inputs["input_ids"][0] == tokenizer.mask_token_id][0], tokenizer


def test_the_ids_are_those_of_the_vocabulary(model: TextModel, folder: Path) -> None:
    tokenizer, stock = model.tokenizer, transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.ids.tolist() == sorted(set(stock.get_vocab().values()))
    assert tokenizer.size == max(stock.get_vocab().values()) + 1
    assert tokenizer.encode("the ship <far>") == stock.encode(
        "the ship <far>", add_special_tokens=False
    )
    assert tokenizer.missing.isdisjoint(tokenizer.ids.tolist())
    with pytest.raises(IndexError, match="there is no token"):
        tokenizer.piece(tokenizer.size)


def test_every_token_is_predicted_and_no_other_row(model: TextModel, folder: Path) -> None:
    """In the order of Transformers, with probabilities that sum to 1."""
    [guesses] = model.fill_mask(TEXT, top_k=100_000)
    logits, stock = stock_logits(folder, TEXT)
    ids = sorted(set(stock.get_vocab().values()))
    expected = torch.softmax(logits[ids].double(), 0)
    assert len(guesses) == len(ids)
    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)
    for guess in guesses:
        place = ids.index(stock.convert_tokens_to_ids(guess.piece))
        assert guess.probability == pytest.approx(float(expected[place]), rel=1e-3, abs=1e-7)


def test_scores_and_generation_leave_out_the_other_rows(model: TextModel) -> None:
    [score] = model.score(["the ship."])
    assert score > -50  # rows of the padding have a bias of 50
    [continuation] = model.generate("the", max_new_tokens=8, temperature=2.0, seed=3)
    assert continuation.text


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "T5ForConditionalGeneration"])
def test_no_row_without_a_token_is_generated(architecture: str, tmp_path: Path) -> None:
    """Greedily, drawn or by beams, though such a row is the likeliest of all."""
    stock = stock_model(architecture, bos_token_id=2, eos_token_id=3, pad_token_id=0)
    stock.resize_token_embeddings(pad_to_multiple_of=64 + 8)
    table = stock.get_output_embeddings().weight
    with torch.no_grad():
        table[NUM_TOKENS:] = 30 * torch.randn(len(table) - NUM_TOKENS, table.shape[1])
    folder = saved(stock, tmp_path / "stock", decoder_start_token_id=0)
    model = TextModel(*import_folder(folder), "float32")
    assert model.model.vocabulary_size > model.tokenizer.size
    settings: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 1.0, "top_k": 3},
        {"beams": 3},
    ]
    for chosen in settings:
        [continuation] = model.generate(["the ship"], max_new_tokens=6, **chosen)
        assert all(piece < NUM_TOKENS for piece in continuation.pieces)
        assert np.isfinite(continuation.log_probabilities).all()
    if architecture.startswith("GPT2"):
        assert np.isfinite(model.score(["the ship the ship."])).all()


def test_the_model_is_served(model: TextModel) -> None:
    with TestClient(application({"m": model}, Settings())) as client:
        for top_k in (60, 100):
            answer = client.post("/fill-mask", json={"inputs": TEXT, "top_k": top_k})
            assert answer.status_code == 200, answer.text
        found = answer.json()
    tokens = [guess["token_str"] for guess in found if isinstance(guess, dict)]
    assert all(model.tokenizer.id(token) is not None for token in tokens)


def test_the_export_is_verified_and_reads_back(
    model: TextModel, folder: Path, tmp_path: Path
) -> None:
    export_folder(model.model, model.tokenizer, tmp_path / "export", verify=True)
    assert import_folder(tmp_path / "export")[1].ids.tolist() == model.tokenizer.ids.tolist()
    (tmp_path / "export" / "tokenizer.json").unlink()  # vocab.txt alone says the same
    again = import_folder(tmp_path / "export")[1]
    if "<far>" not in again.backend.get_vocab():
        assert again.ids.tolist() == model.tokenizer.ids.tolist()
        assert again.encode("the ship") == model.tokenizer.encode("the ship")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert sorted(set(stock.get_vocab().values())) == model.tokenizer.ids.tolist()


def test_text_is_prepared_examined_evaluated_and_traced(model: TextModel, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(
        "\n\n".join(["the ship, the ship. " * 9] * 2 + ["a c. " * 9])
    )
    data = prepare(
        tmp_path / "text.txt", tmp_path / "data", model.tokenizer, heldout=0.4, num_workers=1
    )
    assert len(data.piece_counts) == model.tokenizer.size
    assert letters(data.tokenizer)[list(data.tokenizer.missing)].all()
    assert evaluate(model.model, data)["masked_loss"] < 30  # rows of the padding have a bias of 50
    trace(model.model.recipe, data, 0, model=model.model, num_answers=100_000)


def test_random_tokens_and_sentinels_are_tokens() -> None:
    backend = library.Tokenizer.from_str(wordpiece().to_str())
    settings = json.loads(backend.to_str())
    settings["model"]["vocab"] |= {"far": 200, "off": 203}
    tokenizer = Tokenizer(library.Tokenizer.from_str(json.dumps(settings)))
    vocabulary = Vocabulary.of(tokenizer)
    where = np.arange(20_000)[None]
    for random_from in ("vocabulary", "non-special"):
        drawn = Replace(random_from=random_from)._drawn(vocabulary, Draw(0), where)
        plain = random_from == "non-special"
        expected = set(tokenizer.ids.tolist()) - (tokenizer.specials.all if plain else set())
        assert set(drawn.ravel().tolist()) == expected
    assert vocabulary.tokens[[-1, -2]].tolist() == [203, 200]


def test_an_id_that_the_library_gives_otherwise_is_refused(tmp_path: Path) -> None:
    """It numbers added tokens in their order, whatever their file states."""
    folder = saved(stock_model("BertForMaskedLM", vocab_size=300), tmp_path / "stock")
    settings = json.loads((folder / "tokenizer.json").read_text())
    token = settings["added_tokens"][-1]
    settings["added_tokens"].append(token | {"id": 250, "content": "<far>"})
    (folder / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"'<far>' .*250"):
        import_folder(folder)


def test_special_tokens_stay_what_they_are() -> None:
    assert [wordpiece().token_to_id(name) for name in WORDPIECE_SPECIALS] == [0, 1, 2, 3, 4]
