"""Stock encoder-decoders and ours compute the same, whichever of the two came first."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from stock import (
    PADDED,
    UNSCALED,
    both_lengths,
    coordinates,
    randomise,
    rows,
    saved,
    stock_model,
    wordpiece,
)

from bertwright.encoder.stream import Source
from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder, import_folder
from bertwright.model import Model
from bertwright.text.tokenizers import Tokenizer
from recipes_at_toy_size import toy

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


def same(stock: transformers.PreTrainedModel, ours: Model, lengths: tuple[int, ...]) -> None:
    """States of the encoder and logits of the decoder agree at every real place."""
    ours = ours.cpu()
    pieces, real = rows(ours.vocabulary_size, lengths, stock.config.pad_token_id)
    given = pieces.roll(1, 0)[:, :7].contiguous()
    mask = real.long()
    with torch.inference_mode():
        theirs = stock(input_ids=pieces, attention_mask=mask, decoder_input_ids=given)
        states = ours(pieces, coordinates(real))
        close(states[real], theirs.encoder_last_hidden_state[real])
        assert ours.decoder is not None
        close(
            ours.logits(ours.decoder.states(given, Source(states, coordinates(real)))),
            theirs.logits,
        )


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@both_lengths
@pytest.mark.parametrize("case", STOCK)
def test_an_imported_decoder_computes_the_same(
    case: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    architecture, changes = STOCK[case]
    stock = stock_model(architecture, **changes)
    ours, _ = import_folder(saved(stock, tmp_path / "stock"))
    same(stock, ours, lengths)


@pytest.mark.parametrize("case", STOCK)
def test_an_imported_decoder_is_exported_as_it_was(case: str, tmp_path: Path) -> None:
    architecture, changes = STOCK[case]
    stock = stock_model(architecture, **changes)
    ours, tokenizer = import_folder(saved(stock, tmp_path / "stock"))
    written = export_folder(ours, tokenizer, tmp_path / "export", verify=True)
    assert written.architecture == architecture
    again = type(stock).from_pretrained(tmp_path / "export")
    expected = stock.state_dict()
    assert again.state_dict().keys() == expected.keys()
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


OURS: dict[str, tuple[str, list[str]]] = {
    "t5": ("t5", []),
    "t5-1.1": (
        "t5",
        [
            "encoder.feed_forward={kind: geglu-tanh, bias: false}",
            "output={kind: untied, transform: false, bias: false}",
            "encoder.mixer.width=64",
        ],
    ),
    "bart": ("bart", []),
    "bart-with-fewer": ("bart", ["decoder.layers=1", "encoder.embeddings.scaled=true"]),
}


@pytest.mark.parametrize("case", OURS)
def test_a_model_of_ours_is_computed_by_the_stock_class(case: str, tmp_path: Path) -> None:
    system, changes = OURS[case]
    tokenizer = Tokenizer(wordpiece())
    ours = Model.build(toy(system, *changes), tokenizer.size).eval()
    randomise(ours, UNSCALED)
    written = export_folder(ours, tokenizer, tmp_path / "export", verify=True)
    stock = getattr(transformers, written.architecture).from_pretrained(tmp_path / "export").eval()
    same(stock, ours, PADDED)
    again, _ = import_folder(tmp_path / "export")
    for (name, mine), (other, theirs) in zip(
        ours.named_parameters(), again.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(mine, theirs), name


@pytest.mark.parametrize(
    ("system", "change", "message"),
    [
        ("t5", "encoder.mixer.scaled=true", "encoder.mixer.scaled is true"),
        ("bart", "encoder.norm.placement=pre", "encoder.norm.placement is pre"),
        ("bert", "decoder={}", "decoder is stated"),
        ("mass", "seed=0", "no stock class computes"),
    ],
)
def test_what_no_stock_class_computes_is_said(
    system: str, change: str, message: str, tmp_path: Path
) -> None:
    tokenizer = Tokenizer(wordpiece())
    ours = Model.build(toy(system, change), tokenizer.size)
    with pytest.raises(UserError, match=message):
        export_folder(ours, tokenizer, tmp_path / "export")


def test_stacks_that_differ_in_their_heads_are_not_read(tmp_path: Path) -> None:
    stock = stock_model("BartForConditionalGeneration", decoder_attention_heads=4)
    with pytest.raises(UserError, match="decoder_attention_heads"):
        import_folder(saved(stock, tmp_path / "stock"))
