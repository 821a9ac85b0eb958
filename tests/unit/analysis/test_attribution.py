"""Attributions: estimates by random directions, input embeddings, and results of a small model."""

import numpy as np
import pytest
import torch

from bertwright.analysis.attribution.attention_flow import mean_attention, score_changes_when_masked
from bertwright.analysis.attribution.input_attribution import MaskedTokenPrediction
from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.interventions import EMBEDDINGS_TAP, embed_tokens, replace_embeddings
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts, encoder_inputs
from bertwright.analysis.identifiability.token_mixing import input_contributions
from bertwright.tasks.formats.examples import Example
from experiments.analyses.expectations.attribution import identity_encoder
from experiments.analyses.models import SENTENCES, small_model


def make_inputs(model: AnalysedModel) -> AnalysisInput:
    return AnalysisInput(model, encode_texts(model, [Example(text) for text in SENTENCES]))


@pytest.mark.processor
def test_random_directions_estimate_the_full_jacobian() -> None:
    model = small_model()
    (text,) = encode_texts(model, [Example(SENTENCES[1])])
    token_ids, token_info = encoder_inputs(model, text)
    *_, fractions = input_contributions(model, text, 400, 0)

    def last(embeddings: torch.Tensor) -> torch.Tensor:
        with (
            replace_embeddings(model, embeddings),
            model.encoder.record("blocks.1.residual", output_gradients=True) as values,
        ):
            model.encoder(token_ids, token_info)
        return values["blocks.1.residual"]

    jacobian = torch.autograd.functional.jacobian(last, embed_tokens(model, token_ids, token_info))
    norms = jacobian[0, :, :, 0].square().sum((1, 3)).sqrt()
    expected = (norms / norms.sum(1, keepdim=True)).numpy()
    np.testing.assert_allclose(fractions, expected, rtol=0.15)
    assert fractions.sum(1) == pytest.approx(1)


@pytest.mark.parametrize("system", ["bert", "xlnet", "modern"])
def test_embeddings_of_a_pair(system: str) -> None:
    model = small_model(system)
    texts = encode_texts(model, [Example(SENTENCES[0], SENTENCES[1]), Example(SENTENCES[2])])
    for text in texts:
        (batch,) = activation_batches(model, [text], (EMBEDDINGS_TAP,))
        embeddings = embed_tokens(model, *encoder_inputs(model, text))
        recorded = batch.values[EMBEDDINGS_TAP]
        torch.testing.assert_close(embeddings, recorded, rtol=0, atol=1e-6)


def test_models_that_predict_elsewhere_are_not_analysed() -> None:
    kinds = ("input-attribution", "attention-flow", "learned-masks", "attention-explains")
    for system in ("xlnet", "gpt-bert"):
        model = small_model(system)
        inputs = AnalysisInput(
            model, encode_texts(model, [Example(text) for text in 3 * SENTENCES])
        )
        for kind in kinds:
            reason = Analysis.parse(kind).not_applicable(inputs) or ""
            assert "in their own positions" in reason, kind
    assert (
        Analysis.parse("fixed-heads").not_applicable(make_inputs(small_model("xlnet"))) is not None
    )


def test_results_of_a_small_model() -> None:
    inputs = make_inputs(small_model())
    result = Analysis.parse({"kind": "input-attribution", "num_points": 64}).run(inputs)
    metrics = {finding.metric for finding in result.findings}
    assert metrics >= {"score drop, random tokens", "score drop, gradient minus random"}
    mixing = Analysis.parse({"kind": "token-mixing", "num_directions": 2}).run(inputs)
    assert [f.layer for f in mixing.findings] == [0, 1, None]
    assert all(0 < f.value < 1 for f in mixing.findings[:2])
    flows = Analysis.parse("attention-flow").run(inputs)
    assert flows.arrays["correlations"].shape == (len(inputs.texts), 3)
    assert (np.abs(flows.arrays["correlations"]) <= 1).all()


def test_the_drop_of_a_tokens_contribution_is_from_the_first_layer_to_the_last() -> None:
    inputs = make_inputs(small_model("bert", "encoder.depth.layers=3"))
    result = Analysis.parse({"kind": "token-mixing", "num_directions": 2}).run(inputs)
    means, drop = result.arrays["own_contribution"].mean(0), result.findings[-1]
    assert drop.value == pytest.approx(means[-1] - means[0])


def test_an_encoder_without_output_has_no_score_changes() -> None:
    model = identity_encoder()
    prediction = MaskedTokenPrediction.from_text(model, make_inputs(model).texts[0], 0, 0)
    changes = score_changes_when_masked(prediction)
    assert changes == pytest.approx(0, abs=1e-12)
    for weights in mean_attention(prediction):
        assert weights.sum(1) == pytest.approx(1)
