"""Stock encoder-decoders and ours compute the same, imported or exported."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models import Model
from bertwright.modules.token_tensors import CrossAttentionSource
from stock_models import (
    PADDED,
    UNSCALED,
    both_lengths,
    random_batch,
    randomise,
    saved,
    stock_model,
    token_info,
    wordpiece,
)
from toy_recipes import toy

GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
STOCK: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", {}),
    "t5-wide-heads": ("T5ForConditionalGeneration", {"d_kv": 24, "num_decoder_layers": 2}),
    "t5-1.1": ("T5ForConditionalGeneration", GATED),
    "bart": ("BartForConditionalGeneration", {}),
    "bart-scaled": (
        "BartForConditionalGeneration",
        {"scale_embedding": True, "decoder_layers": 2, "activation_function": "relu"},
    ),
}


def require_equal_outputs(
    stock: transformers.PreTrainedModel, ours: Model, lengths: tuple[int, ...]
) -> None:
    """Hidden states of the encoder and logits of the decoder agree at all real positions."""
    ours = ours.cpu()
    token_ids, is_real = random_batch(ours.vocab_size, lengths, stock.config.pad_token_id)
    decoder_input_ids = token_ids.roll(1, 0)[:, :7].contiguous()
    attention_mask = is_real.long()
    with torch.inference_mode():
        theirs = stock(
            input_ids=token_ids, attention_mask=attention_mask, decoder_input_ids=decoder_input_ids
        )
        hidden_states = ours(token_ids, token_info(is_real))
        require_close(hidden_states[is_real], theirs.encoder_last_hidden_state[is_real])
        assert ours.decoder is not None
        require_close(
            ours.logits(
                ours.decoder.decode(
                    decoder_input_ids, CrossAttentionSource(hidden_states, token_info(is_real))
                )
            ),
            theirs.logits,
        )


def require_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@both_lengths
@pytest.mark.parametrize("case", STOCK)
def test_an_imported_decoder_computes_the_same(
    case: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    architecture, changes = STOCK[case]
    stock = stock_model(architecture, **changes)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    require_equal_outputs(stock, ours, lengths)


@pytest.mark.parametrize("case", STOCK)
def test_an_imported_decoder_is_exported_unchanged(case: str, tmp_path: Path) -> None:
    architecture, changes = STOCK[case]
    stock = stock_model(architecture, **changes)
    ours, tokenizer = import_huggingface(saved(stock, tmp_path / "stock"))
    report = export_huggingface(ours, tokenizer, tmp_path / "export", verify=True)
    assert report.architecture == architecture
    reloaded = type(stock).from_pretrained(tmp_path / "export")
    expected = stock.state_dict()
    assert reloaded.state_dict().keys() == expected.keys()
    for name, tensor in reloaded.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


OURS: dict[str, tuple[str, list[str]]] = {
    "t5": ("t5", []),
    "t5-1.1": (
        "t5",
        [
            "encoder.feed_forward={kind: geglu-tanh, bias: false, dropout: 0.1}",
            "output={kind: untied, transform: false, bias: false}",
            "encoder.mixer.width=64",
        ],
    ),
    "bart": ("bart", []),
    "bart-with-fewer": ("bart", ["decoder.layers=1", "encoder.embeddings.scaled=true"]),
}


@pytest.mark.parametrize("case", OURS)
def test_an_exported_decoder_computes_the_same(case: str, tmp_path: Path) -> None:
    system, changes = OURS[case]
    tokenizer = Tokenizer(wordpiece())
    ours = Model.build(toy(system, *changes), tokenizer.vocab_size).eval()
    randomise(ours, UNSCALED)
    report = export_huggingface(ours, tokenizer, tmp_path / "export", verify=True)
    stock = getattr(transformers, report.architecture).from_pretrained(tmp_path / "export").eval()
    require_equal_outputs(stock, ours, PADDED)
    imported, _ = import_huggingface(tmp_path / "export")
    for (name, parameter), (imported_name, imported_parameter) in zip(
        ours.named_parameters(), imported.named_parameters(), strict=True
    ):
        assert name == imported_name
        assert torch.equal(parameter, imported_parameter), name


@pytest.mark.parametrize(
    ("system", "change", "message"),
    [
        ("t5", "encoder.mixer.scaled=true", "encoder.mixer.scaled is true"),
        ("bart", "encoder.norm.placement=pre", "encoder.norm.placement is pre"),
        ("bert", "decoder={}", "decoder is stated"),
        ("mass", "seed=0", "no stock class computes"),
    ],
)
def test_unsupported_recipes_are_refused(
    system: str, change: str, message: str, tmp_path: Path
) -> None:
    tokenizer = Tokenizer(wordpiece())
    ours = Model.build(toy(system, change), tokenizer.vocab_size)
    with pytest.raises(UserError, match=message):
        export_huggingface(ours, tokenizer, tmp_path / "export")


def test_stacks_with_different_heads_are_refused(tmp_path: Path) -> None:
    stock = stock_model("BartForConditionalGeneration", decoder_attention_heads=4)
    with pytest.raises(UserError, match="decoder_attention_heads"):
        import_huggingface(saved(stock, tmp_path / "stock"))
