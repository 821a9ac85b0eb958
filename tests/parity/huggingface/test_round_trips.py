"""An imported model is exported as the same stock class with the same tensors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.families.bigbird import BigBird
from bertwright.interop.huggingface.importer import import_huggingface, load_huggingface
from bertwright.models import Model
from bertwright.models.saving import load_model, save_model
from bertwright.tasks.formats.examples import MultipleChoice
from stock_models import random_batch, saved, stock_model, token_info

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
    ("ModernBertForMaskedLM", UNTIED | {"decoder_bias": False}),
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
    ("MobileBertForPreTraining", {"classifier_activation": False}),
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
REPLACED_BY_OUTPUT_BIAS = ("cls.predictions.bias",)
"""With untied tables, the stock class uses the output layer's bias only."""


@pytest.mark.parametrize(("architecture", "settings"), STOCK)
def test_a_stock_model_round_trips(
    architecture: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    stock = stock_model(architecture, **settings)
    save_model(tmp_path / "ours", *import_huggingface(saved(stock, tmp_path / "stock")))
    export = export_huggingface(*load_model(tmp_path / "ours"), tmp_path / "export", verify=True)
    assert export.architecture == architecture
    reloaded, info = type(stock).from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert reloaded.config.model_type == stock.config.model_type
    before, after = stock.state_dict(), reloaded.state_dict()
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        if settings != UNTIED or name not in REPLACED_BY_OUTPUT_BIAS:
            assert torch.equal(tensor, before[name]), name


def test_another_family_can_be_requested(tmp_path: Path) -> None:
    model, tokenizer = import_huggingface(
        saved(stock_model("DistilBertForMaskedLM"), tmp_path / "s")
    )
    assert model.recipe.family == "distilbert"
    export = export_huggingface(model, tokenizer, tmp_path / "bert", True, model_type="bert")
    assert export.architecture == "BertForMaskedLM"


def test_a_changed_model_gets_another_class(tmp_path: Path) -> None:
    """DistilBERT has no segments."""
    model, tokenizer = import_huggingface(saved(stock_model("BertForMaskedLM"), tmp_path / "s"))
    model.recipe = model.recipe.model_copy(update={"family": "distilbert"})
    assert export_huggingface(model, tokenizer, tmp_path / "e").architecture == "BertForMaskedLM"


def test_verification_checks_the_loading_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No output of the class depends on the pooler, so states and logits agree."""
    model, tokenizer = import_huggingface(saved(stock_model("BigBirdForMaskedLM"), tmp_path / "s"))
    table = tuple(
        (ours, ("pooler.dense",) if ours == "pooler" else theirs)
        for ours, theirs in BigBird.encoder_table
    )
    monkeypatch.setattr(BigBird, "encoder_table", table)
    with pytest.raises(UserError, match=r"BigBirdForMaskedLM (lacks|does not read) the tensor"):
        export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(
    "architecture", ["BertForMaskedLM", "XLMRobertaForMaskedLM", "LongformerForMaskedLM"]
)
def test_a_pooler_beside_a_language_model_round_trips(architecture: str, tmp_path: Path) -> None:
    """The class of the language model does not read it, the base class does."""
    settings = LONG if architecture.startswith("Longformer") else {}
    model, tokenizer = import_huggingface(
        saved(stock_model(architecture, **settings), tmp_path / "stock")
    )
    recipe = model.recipe.model_copy(update={"pooler": True})
    pooled = Model.build(recipe, model.vocab_size)
    assert pooled.pooler is not None
    export = export_huggingface(pooled, tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == architecture
    reloaded = transformers.AutoModel.from_pretrained(tmp_path / "export")
    assert torch.equal(reloaded.pooler.dense.weight, pooled.pooler.weight)
    imported, _ = import_huggingface(tmp_path / "export")
    assert imported.pooler is not None
    assert torch.equal(imported.pooler.weight, pooled.pooler.weight)


def require_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["LongformerForMaskedLM", "LongformerModel"])
def test_a_longformer_has_the_default_global_attention(architecture: str, tmp_path: Path) -> None:
    stock = stock_model(architecture, **LONG)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    tokens, mask = random_batch(ours.vocab_size, (12, 7, 3), stock.config.pad_token_id)
    with torch.inference_mode():
        hidden_states = stock.base_model(tokens, mask.long()).last_hidden_state
        require_close(ours.cpu()(tokens, token_info(mask))[mask], hidden_states[mask])


def test_longformer_multiple_choice_equals_the_stock_class(tmp_path: Path) -> None:
    settings = {**LONG, "num_labels": 1, "bos_token_id": 0, "sep_token_id": 2}
    stock = stock_model("LongformerForMultipleChoice", **settings)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    example = MultipleChoice(text="the sea", options=("the the sea", "sea", "b c d"))
    sequences = ours.output_decoder.encode(ours.example_encoder, [example])
    scores = torch.from_numpy(np.concatenate(ours.head_outputs(sequences)))
    with torch.inference_mode():
        expected = [
            float(stock(torch.tensor([[sequence.token_ids]])).logits) for sequence in sequences
        ]
    require_close(scores.flatten(), torch.tensor(expected))


def test_global_positions_round_trip(tmp_path: Path) -> None:
    """Stock classes ignore our key in config.json."""
    stock = stock_model("LongformerForSequenceClassification", **LONG)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    visibility = ours.task_model.recipe.encoder.visibility
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert load_huggingface(tmp_path / "export").task_model.recipe.encoder.visibility == visibility


@pytest.mark.parametrize("architecture", ["BertModel", "RobertaModel", "AlbertModel"])
def test_a_missing_pooler_is_exported_as_zeros(architecture: str, tmp_path: Path) -> None:
    """The bare stock class would initialise it randomly; zeros are imported as none."""
    stock = stock_model(architecture)
    bare = type(stock)(stock.config, add_pooling_layer=False)
    model, tokenizer = import_huggingface(saved(bare, tmp_path / "stock"))
    assert model.pooler is None
    export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    reloaded = transformers.AutoModel.from_pretrained(tmp_path / "export")
    assert not any(tensor.any() for tensor in reloaded.pooler.parameters())
    assert import_huggingface(tmp_path / "export")[0].pooler is None
