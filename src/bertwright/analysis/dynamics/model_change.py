"""How training has changed a model, and in which layers (Kovaleva et al. 2019, section 4.3)."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.texts import model_mismatch
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, compute_word_states
from bertwright.analysis.dynamics.layer_redundancy import linear_cka
from bertwright.analysis.geometry.contextuality import unit_vectors
from bertwright.core.significance import FloatArray, bootstrap_ratio

WEIGHTS_TAP = ("blocks.*.attention.weights",)

NUM_LAST_LAYERS = 2
"""Number of last layers compared with the rest."""

ATTENTION_CHANGE = "attention change, last two layers minus others"
PARAMETER_CHANGE = "relative parameter change, upper half minus lower half"


class ModelChange(Analysis):
    """Differences from a second model of the same architecture, such as the pre-trained one.

    Measured are the cosine of attention by head and text, the cosine and CKA of the hidden states
    of words, and the parameter change of each layer relative to its norm.
    """

    kind: Literal["change"] = "change"
    survey_id = "B39"
    compares_models = True
    title = "What has training changed, and in which layers?"
    source = "Kovaleva et al. 2019"
    taps = WORD_STATE_TAPS
    claims = (
        Claim(
            "parameters of upper layers have changed more than those of lower ones",
            "in fine-tuned BERT",
            PARAMETER_CHANGE,
            baseline_name="no difference, over parameter types",
            is_optional=True,
        ),
        Claim(
            "attention has changed most in the last two layers",
            "in BERT-base, for six of seven tasks",
            ATTENTION_CHANGE,
            is_optional=True,
        ),
    )
    plots = (
        LayerCurves("", lambda r: {"CKA of hidden states": r.arrays["cka"]}),
        LayerCurves(
            "",
            lambda r: {"relative parameter change": r.arrays["parameter_change"]},
            has_embeddings=False,
        ),
        HeatMap("cosine of attention", lambda r: r.arrays.get("attention"), (None, 1)),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if inputs.other_model is None:
            return "it needs a second model: give one with --compare-with"
        reason = super().not_applicable(inputs) or model_mismatch(
            inputs.model, inputs.other_model, inputs.texts
        )
        if reason is None and _parameter_shapes(inputs.model) != _parameter_shapes(
            inputs.other_model
        ):
            return (
                f"blocks of {inputs.other_model.name} have other shapes: compare models of the "
                f"same size"
            )
        return reason

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        other, seed = inputs.other_model, inputs.seed
        assert other is not None
        findings = Findings(seed)
        arrays: dict[str, NDArray[Any]] = {
            "parameter_change": relative_parameter_change(inputs.model, other)
        }
        for layer, value in enumerate(arrays["parameter_change"]):
            findings.add_value("relative parameter change", value, layer=layer)
        by_parameter = relative_change_by_parameter(inputs.model, other)
        if by_parameter is not None:
            half = len(by_parameter) // 2
            difference = by_parameter[half:].mean(0) - by_parameter[:half].mean(0)
            findings.add_ratio(PARAMETER_CHANGE, difference)
        states = [
            compute_word_states(inputs),
            compute_word_states(
                AnalysisInput(other, inputs.texts, cache_folder=inputs.cache_folder)
            ),
        ]
        text_ids = states[0].text_ids
        arrays["cka"] = np.zeros(states[0].num_layers)
        for layer, (first, second) in enumerate(zip(*(s.states for s in states), strict=True)):
            cosines = (unit_vectors(first) * unit_vectors(second)).sum(1)
            sums, counts = np.bincount(text_ids, cosines), np.bincount(text_ids)
            has_words = counts > 0
            interval = bootstrap_ratio(sums[has_words], counts[has_words], seed=seed)
            arrays["cka"][layer] = linear_cka(first, second)
            findings.add_interval(
                "cosine of hidden states", interval, layer, includes_embeddings=True
            )
            findings.add_value(
                "CKA of hidden states", arrays["cka"][layer], layer=layer, includes_embeddings=True
            )
        if inputs.model.missing_taps(*WEIGHTS_TAP) is None:
            cosines = attention_cosines(inputs, other)
            findings.add_by_head(("cosine of attention",), cosines[..., None])
            arrays["attention"] = cosines.mean(0)
            if inputs.model.num_layers > NUM_LAST_LAYERS:
                last, before = (
                    (1 - cosines[:, part]).mean((1, 2))
                    for part in (slice(-NUM_LAST_LAYERS, None), slice(-NUM_LAST_LAYERS))
                )
                findings.add_difference(ATTENTION_CHANGE, last, before)
        return AnalysisResult(findings, arrays)


def relative_parameter_change(model: AnalysedModel, other_model: AnalysedModel) -> FloatArray:
    """Return the norm of each layer's parameter change, relative to ``other_model``."""
    change = np.zeros(model.num_layers)
    for layer in range(model.num_layers):
        blocks = (one.encoder.blocks[layer].parameters() for one in (model, other_model))
        pairs = ((a.detach(), b.detach()) for a, b in zip(*blocks, strict=True))
        squares = [
            (float((a - b).double().square().sum()), float(b.double().square().sum()))
            for a, b in pairs
        ]
        difference, norm = np.sum(squares, axis=0)
        change[layer] = (difference / max(norm, 1e-300)) ** 0.5
    return change


def relative_change_by_parameter(
    model: AnalysedModel, other_model: AnalysedModel
) -> FloatArray | None:
    """Return the relative change of each single parameter, (layers, parameters).

    None if layers share parameters or differ in their parameters.
    """
    blocks = [dict(block.named_parameters()) for block in model.encoder.blocks]
    distinct = {id(parameter) for block in blocks for parameter in block.values()}
    is_uniform = all(block.keys() == blocks[0].keys() for block in blocks)
    if len(blocks) < 2 or not is_uniform or len(distinct) < sum(map(len, blocks)):
        return None
    change = np.zeros((len(blocks), len(blocks[0])))
    for layer, (block, others) in enumerate(zip(blocks, other_model.encoder.blocks, strict=True)):
        parameters = dict(others.named_parameters())
        for index, name in enumerate(block):
            difference = (block[name].detach() - parameters[name].detach()).double().norm()
            change[layer, index] = float(
                difference / parameters[name].detach().double().norm().clamp(min=1e-30)
            )
    return change


def _parameter_shapes(model: AnalysedModel) -> list[torch.Size]:
    return [parameter.shape for parameter in model.encoder.blocks.parameters()]


def attention_cosines(inputs: AnalysisInput, other_model: AnalysedModel) -> FloatArray:
    """Return the cosine between the attention of both models, by text and head, (N, layers, H)."""
    model = inputs.model
    cosines = np.zeros((len(inputs.texts), model.num_layers, model.num_heads))
    for batch, other_batch in zip(
        activation_batches(model, inputs.texts, WEIGHTS_TAP),
        activation_batches(other_model, inputs.texts, WEIGHTS_TAP),
        strict=True,
    ):
        for layer in range(model.num_layers):
            cosine = torch.cosine_similarity(
                batch.attention(layer).double().flatten(2),
                other_batch.attention(layer).double().flatten(2),
                dim=-1,
            )
            cosines[batch.text_indices, layer] = cosine.cpu().numpy()
    return cosines
