"""Analyses agree with other libraries: attention, rollout and importances with Transformers on the
exported model, integrated gradients with captum."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertwright.analysis.attention.rollout import attention_rollout
from bertwright.analysis.attribution.input_attribution import MaskedTokenPrediction
from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.heads.head_importance import head_importances
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import small_inputs
from stock_models import TOKENIZERS, randomise
from toy_recipes import toy

SENTENCES = ("the ships, three of them: ships!", "a lamp", "three ships of the three")

CLOSE = {"rtol": 0, "atol": 1e-5}


def exported(system: str, folder: Path, kind: str) -> tuple[AnalysisInput, Any]:
    """Return a random model with texts, and the Transformers model of its export."""
    tokenizer = Tokenizer(TOKENIZERS["Bert"]())
    model = Model.build(toy(system), tokenizer.vocab_size).eval()
    randomise(model, 0.2)
    export_huggingface(model, tokenizer, folder / "export")
    stock = getattr(transformers, kind).from_pretrained(
        folder / "export", attn_implementation="eager"
    )
    analysed = AnalysedModel(system, TextModel(model, tokenizer, "float32"))
    return AnalysisInput(
        analysed, encode_texts(analysed, [Example(text) for text in SENTENCES])
    ), stock.eval()


@pytest.mark.parametrize("system", ["bert", "albert", "electra", "gpt-2"])
def test_attention_and_rollout(system: str, tmp_path: Path) -> None:
    inputs, stock = exported(system, tmp_path, "AutoModel")
    for batch in activation_batches(inputs.model, inputs.texts, ["blocks.*.attention.weights"]):
        layers = [batch.attention(layer).cpu() for layer in range(inputs.model.num_layers)]
        rollout = attention_rollout([weights.mean(1) for weights in layers])[-1]
        for index, text in enumerate(batch.texts):
            with torch.no_grad():
                output = stock(torch.tensor([text.token_ids]), output_attentions=True)
            expected = torch.eye(len(text))
            for weights, theirs in zip(layers, output.attentions, strict=True):
                size = theirs.shape[-1]
                torch.testing.assert_close(weights[index, :, :size, :size], theirs[0], **CLOSE)
                expected = (theirs[0].mean(0) + torch.eye(size)) / 2 @ expected
            torch.testing.assert_close(rollout[index, :size, :size], expected, **CLOSE)


def test_importances(tmp_path: Path) -> None:
    inputs, stock = exported("bert", tmp_path, "AutoModelForMaskedLM")
    probe, mask = (
        MaskedLMProbe(inputs.model, inputs.texts),
        inputs.model.tokenizer.special_tokens.mask,
    )
    contexts: dict[int, torch.Tensor] = {}
    for layer, block in enumerate(stock.bert.encoder.layer):

        def keep(module: Any, args: Any, layer: int = layer) -> None:
            args[0].retain_grad()
            contexts[layer] = args[0]

        block.attention.output.dense.register_forward_pre_hook(keep)
    expected = np.zeros((inputs.model.num_layers, inputs.model.num_heads))
    for number, text in enumerate(inputs.texts):
        token_ids = torch.tensor([text.token_ids])
        positions = probe.target_positions(number)
        target = token_ids[0, positions].clone()
        token_ids[0, positions] = mask
        logits = stock(token_ids).logits[0, positions]
        torch.nn.functional.cross_entropy(logits, target, reduction="sum").backward()
        for layer, context in contexts.items():
            assert context.grad is not None
            by_head = (context * context.grad)[0].view(len(text), inputs.model.num_heads, -1)
            expected[layer] += by_head.sum((0, 2)).abs().numpy(force=True)
    np.testing.assert_allclose(head_importances(probe), expected / len(inputs.texts), **CLOSE)


@pytest.mark.parametrize("points", [3, 40])
def test_integrated_gradients(points: int) -> None:
    # Takes seconds to import, which other workers need not spend.
    from captum.attr import IntegratedGradients

    inputs = small_inputs()
    for number, text in enumerate(inputs.texts[:3]):
        prediction = MaskedTokenPrediction.from_text(inputs.model, text, 0, number)
        attributions, _ = prediction.attribute(points)
        masks = torch.full_like(prediction.token_ids, inputs.model.tokenizer.special_tokens.mask)
        theirs = IntegratedGradients(prediction.log_probabilities).attribute(
            prediction.embed(prediction.token_ids),
            prediction.embed(masks),
            n_steps=points,
            method="riemann_middle",
        )
        expected = theirs.sum(-1)[0].numpy(force=True)
        np.testing.assert_allclose(
            attributions["integrated gradients"], expected, rtol=0, atol=1e-7
        )
