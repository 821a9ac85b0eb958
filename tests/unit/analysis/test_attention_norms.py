"""Attention norms: transformed values and the output of a head."""

import numpy as np
import pytest
import torch

from bertwright.analysis.core import activations
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.identifiability.effective_attention import (
    head_output_factors,
    missing_head_outputs,
)
from bertwright.tasks.formats.examples import Example
from bertwright.testing.toy import toy_text_model
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


def test_equal_norms_have_equal_ranks_in_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without positions in the embeddings, "a" has the same value wherever it is.
    network = toy_text_model([*SENTENCES], recipe="transformer-xl")
    model = AnalysedModel("relative positions", network)
    texts = encode_texts(model, [Example(text) for text in SENTENCES])
    correlations = []
    for most in (1, 16, 1024):
        monkeypatch.setattr(activations, "MAX_TOKENS_PER_BATCH", most)
        result = Analysis.parse("attention-norms").run(AnalysisInput(model, texts))
        correlations.append(result.arrays["correlations"])
    np.testing.assert_allclose(correlations[1:], [correlations[0]] * 2, atol=1e-6)
