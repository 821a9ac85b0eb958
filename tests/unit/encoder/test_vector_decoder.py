"""A decoder that reads the vector of a text alone, and shares the encoder's parameters (TSDAE)."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.models.saving import load_model, save_model
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.testing.toy import toy_tokenizer
from toy_recipes import VOCABULARY, shaken, toy


def build_model(pooling: str) -> Model:
    recipe = toy("tsdae", f"decoder.source={pooling}", f"vectors.pooling={pooling}")
    return shaken(Model.build(recipe, VOCABULARY), 0.1)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@torch.no_grad()
def test_the_decoder_reads_nothing_but_the_vector(pooling: str) -> None:
    model = build_model(pooling)
    generator = torch.Generator().manual_seed(0)
    document_ids = torch.tensor([[0] * 9, [0] * 6 + [-1] * 3])
    states = torch.randn(2, 9, 32, generator=generator)
    is_text = (document_ids >= 0)[..., None]
    mean = (states * is_text).sum(1) / is_text.sum(1)
    vector = mean if pooling == "mean" else states[:, 0]
    others = torch.randn(2, 9, 32, generator=generator)
    if pooling == "mean":
        others += (mean - (others * is_text).sum(1) / is_text.sum(1))[:, None]
    else:
        others[:, 0] = states[:, 0]
    token_ids = torch.randint(5, VOCABULARY, (2, 7), generator=generator)

    def decode(states: torch.Tensor, document_ids: torch.Tensor | None) -> torch.Tensor:
        index = torch.arange(states.shape[1])[None]
        source = CrossAttentionSource(states, TokenInfo(index, document_ids=document_ids))
        return model.decoder.decode(token_ids, source)

    expected = decode(states, document_ids)
    torch.testing.assert_close(decode(others, document_ids), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(decode(vector[:, None], None), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(decode(vector[:, None] + 1, None), expected, atol=1e-3)


def test_a_tied_decoder_has_parameters_of_cross_attention_alone(tmp_path) -> None:
    model = build_model("cls")
    decoder_names = [name for name, _ in model.named_parameters() if name.startswith("decoder.")]
    assert decoder_names
    assert all("cross_attention" in name for name in decoder_names)
    save_model(tmp_path, model, toy_tokenizer())
    loaded, _ = load_model(tmp_path)
    for block, encoder_block in zip(loaded.decoder.blocks, loaded.encoder.blocks, strict=True):
        assert block.sublayers["attention"] is encoder_block.sublayers["attention"]
        assert block.norms["feed_forward"] is encoder_block.norms["feed_forward"]
    for (name, parameter), other in zip(model.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(parameter, other), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("decoder.layers=1", "a tied decoder has the encoder's blocks"),
        ("vectors.pooling=mean", "pool the vectors of texts in one way"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        toy("tsdae", change)
