"""What is imported is exported as the class that it was, and every tensor comes back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from stock import coordinates, rows, saved, stock_model

from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder, import_folder
from bertwright.interop.huggingface.bigbird import BigBird
from bertwright.interop.huggingface.reading import load
from bertwright.model.folder import load_model, save_model
from bertwright.tasks.formats.examples import Options

TOKENS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
LONG = {"attention_window": 4, "type_vocab_size": 1}
BLOCKS = {"block_size": 2, "num_random_blocks": 1}
FULL = {"attention_type": "original_full"}
UNTIED = {"tie_word_embeddings": False}

STOCK: list[tuple[str, dict[str, Any]]] = [
    ("BertForPreTraining", {}),
    ("BertForMaskedLM", UNTIED),
    ("BertForNextSentencePrediction", {}),
    ("BertModel", {}),
    ("RobertaForMaskedLM", {}),
    ("RobertaModel", {}),
    ("XLMRobertaForMaskedLM", {}),
    ("XLMRobertaModel", {}),
    ("ModernBertForMaskedLM", UNTIED),
    ("ModernBertModel", {}),
    ("AlbertForPreTraining", {}),
    ("AlbertForMaskedLM", {}),
    ("AlbertModel", {}),
    ("ElectraForPreTraining", {}),
    ("ElectraForMaskedLM", {}),
    ("ElectraModel", {}),
    ("DistilBertForMaskedLM", {}),
    ("DistilBertModel", {}),
    ("GPT2LMHeadModel", TOKENS),
    ("GPT2Model", TOKENS),
    ("OpenAIGPTLMHeadModel", TOKENS),
    ("OpenAIGPTModel", TOKENS),
    ("XLNetLMHeadModel", TOKENS),
    ("XLNetModel", TOKENS),
    ("MobileBertForPreTraining", {}),
    ("MobileBertForMaskedLM", {}),
    ("MobileBertModel", {}),
    ("XLMWithLMHeadModel", {**TOKENS, "n_langs": 2, "lang2id": {"a": 0, "b": 1}}),
    ("XLMModel", TOKENS),
    ("LongformerForMaskedLM", LONG),
    ("LongformerModel", LONG),
    ("BigBirdForPreTraining", BLOCKS),
    ("BigBirdForMaskedLM", BLOCKS),
    ("BigBirdForMaskedLM", FULL),
    ("BigBirdModel", FULL),
    ("T5ForConditionalGeneration", {}),
    ("T5ForConditionalGeneration", {**UNTIED, "feed_forward_proj": "gated-gelu"}),
    ("T5Model", {}),
    ("BartForConditionalGeneration", {}),
    ("BartModel", {}),
]
OF_THE_DECODER = ("cls.predictions.bias",)
"""Where the tables are two, the stock class computes with the bias of the decoder alone."""


@pytest.mark.parametrize(("architecture", "settings"), STOCK)
def test_a_stock_model_comes_back_as_it_was(
    architecture: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    stock = stock_model(architecture, **settings)
    save_model(tmp_path / "ours", *import_folder(saved(stock, tmp_path / "stock")))
    export = export_folder(*load_model(tmp_path / "ours"), tmp_path / "export", verify=True)
    assert export.architecture == architecture
    again, info = type(stock).from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.config.model_type == stock.config.model_type
    before, after = stock.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        if settings != UNTIED or name not in OF_THE_DECODER:
            assert torch.equal(tensor, before[name]), name


def test_another_family_can_be_asked_for(tmp_path: Path) -> None:
    model, tokenizer = import_folder(saved(stock_model("DistilBertForMaskedLM"), tmp_path / "s"))
    assert model.recipe.family == "distilbert"
    export = export_folder(model, tokenizer, tmp_path / "bert", True, family_name="bert")
    assert export.architecture == "BertForMaskedLM"


def test_a_changed_model_becomes_what_computes_it(tmp_path: Path) -> None:
    """No DistilBERT has segments."""
    model, tokenizer = import_folder(saved(stock_model("BertForMaskedLM"), tmp_path / "s"))
    model.recipe = model.recipe.model_copy(update={"family": "distilbert"})
    assert export_folder(model, tokenizer, tmp_path / "e").architecture == "BertForMaskedLM"


def test_verification_reads_what_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though states and logits are the same: no output of the class is made of the pooler."""
    model, tokenizer = import_folder(saved(stock_model("BigBirdForMaskedLM"), tmp_path / "s"))
    table = tuple(
        (ours, ("pooler.dense",) if ours == "pooler" else theirs)
        for ours, theirs in BigBird.encoder_table
    )
    monkeypatch.setattr(BigBird, "encoder_table", table)
    with pytest.raises(UserError, match=r"BigBirdForMaskedLM (lacks|does not read) the tensor"):
        export_folder(model, tokenizer, tmp_path / "export", verify=True)
    assert not (tmp_path / "export").exists()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["LongformerForMaskedLM", "LongformerModel"])
def test_a_longformer_sees_what_its_class_sees_by_itself(architecture: str, tmp_path: Path) -> None:
    stock = stock_model(architecture, **LONG)
    ours, _ = import_folder(saved(stock, tmp_path / "stock"))
    tokens, real = rows(ours.vocabulary_size, (12, 7, 3), stock.config.pad_token_id)
    with torch.inference_mode():
        states = stock.base_model(tokens, real.long()).last_hidden_state
        close(ours.cpu()(tokens, coordinates(real))[real], states[real])


def test_a_longformer_that_chooses_sees_the_options_as_its_class_does(tmp_path: Path) -> None:
    settings = {**LONG, "num_labels": 1, "bos_token_id": 0, "sep_token_id": 2}
    stock = stock_model("LongformerForMultipleChoice", **settings)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    asked = Options(first="the sea", options=("the the sea", "sea", "b c d"))
    sequences = ours.answering.rows(ours.maker, [asked])
    scores = torch.from_numpy(np.concatenate(ours.outputs(sequences)))
    with torch.inference_mode():
        expected = [float(stock(torch.tensor([[row.pieces]])).logits) for row in sequences]
    close(scores.flatten(), torch.tensor(expected))


def test_global_places_of_ours_come_back(tmp_path: Path) -> None:
    """No stock class is told of them but by the model card; config.json keeps them for us."""
    stock = stock_model("LongformerForSequenceClassification", **LONG)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    rule = ours.net.recipe.encoder.visibility
    export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert load(tmp_path / "export").net.recipe.encoder.visibility == rule


@pytest.mark.parametrize("architecture", ["BertModel", "RobertaModel", "AlbertModel"])
def test_a_pooler_that_is_not_there_is_written_as_zeros(architecture: str, tmp_path: Path) -> None:
    """The bare stock class would draw it at random; zeros are read as none."""
    stock = stock_model(architecture)
    bare = type(stock)(stock.config, add_pooling_layer=False)
    model, tokenizer = import_folder(saved(bare, tmp_path / "stock"))
    assert model.pooler is None
    export_folder(model, tokenizer, tmp_path / "export", verify=True)
    again = transformers.AutoModel.from_pretrained(tmp_path / "export")
    assert not any(tensor.any() for tensor in again.pooler.parameters())
    assert import_folder(tmp_path / "export")[0].pooler is None
