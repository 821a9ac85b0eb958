"""Attention norms: transformed values and the output of a head."""

import pytest
import torch

from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.identifiability.effective_attention import (
    head_output_factors,
    missing_head_outputs,
)
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import SENTENCES, small_model


@pytest.mark.parametrize(
    "changes", [[], ["encoder.norm.placement=sub"], ["encoder.mixer.gate=gelu"]]
)
@pytest.mark.parametrize("system", ["bert", "gpt-2", "gpt-bert"])
@pytest.mark.processor
def test_norms_of_transformed_values_and_sums_of_head_outputs(
    system: str, changes: list[str]
) -> None:
    model = small_model(system, *changes)
    (text,) = encode_texts(model, [Example(SENTENCES[0])])
    names = ("weights", "value", "output")
    with torch.inference_mode(), model.encoder.record("blocks.1.attention.*") as values:
        model.encoder(torch.tensor([text.token_ids]))
    weights, value, output = (values[f"blocks.1.attention.{n}"][0].double() for n in names)
    module = model.encoder.blocks[1].get_submodule("sublayers.attention.output")
    by_head = module.weight.detach().T.unflatten(0, (model.num_heads, -1))
    transformed = value @ by_head
    torch.testing.assert_close(
        (value @ head_output_factors(model, 1)).norm(dim=-1),
        transformed.norm(dim=-1),
        rtol=1e-10,
        atol=0,
    )
    total = torch.einsum("hij,hjd->id", weights, transformed) + module.bias
    adds_up = torch.allclose(total, output, rtol=1e-6, atol=1e-9)
    assert adds_up == (missing_head_outputs(model) is None)
