"""Redundancy of layers: their similarity, and the loss when a layer is removed.

Kovaleva et al. (2019, section 4.6); Kornblith et al. (2019).
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.prediction_probe import prediction_probe
from bertwright.analysis.core.requirements import missing_predictions
from bertwright.analysis.core.result import AnalysisResult, Findings, StoredResult
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, compute_word_states
from bertwright.core.significance import FloatArray

SUBLAYERS = ("attention", "feed_forward")

MAX_RELATIVE_LOSS = 0.01
"""Maximum relative loss increase of a redundant layer, at the upper end of its interval."""


def _num_redundant_layers(result: StoredResult) -> Mapping[str, Any]:
    is_redundant = [
        f["interval"][1] < MAX_RELATIVE_LOSS * f["baseline"]["value"]
        for f in result.findings
        if f["metric"] == _loss_increase("layer") and "interval" in f
    ]
    return result.counted_finding(sum(is_redundant), len(is_redundant), "layers")


def _cka_of_adjacent_layers(result: StoredResult) -> Mapping[str, Any]:
    cka = result.arrays["cka"]
    distant = cka[np.triu_indices(len(cka), 2)]
    value = float(distant.mean()) if distant.size else float("nan")
    adjacent = result.computed_finding(float(np.diag(cka, 1).mean()))
    return {**adjacent, "baseline": {"name": "layers farther apart", "value": value}}


class LayerRedundancy(Analysis):
    """The CKA between hidden states of all pairs of layers, and the loss increase without a layer.

    Attention and feed-forward parts are also removed separately. Nothing is retrained.
    """

    kind: Literal["layer-redundancy"] = "layer-redundancy"
    survey_id = "B44"
    title = "Which layers could be removed?"
    source = "Kovaleva et al. 2019; Kornblith et al. 2019"
    taps = (*WORD_STATE_TAPS, "blocks.*.input", *(f"blocks.*.{part}.output" for part in SUBLAYERS))
    requires = (missing_predictions,)
    claims = (
        Claim(
            f"some layer can be removed for less than {MAX_RELATIVE_LOSS:.0%} of the loss",
            "in BERT with uniform attention in a layer, for some fine-tuning tasks",
            _num_redundant_layers,
            baseline_name="none",
        ),
        Claim(
            "adjacent layers are more alike than others",
            "in convolutional networks and in translation",
            _cka_of_adjacent_layers,
            None,
        ),
    )
    plots = (
        HeatMap(
            "CKA",
            lambda r: r.arrays["cka"],
            xlabel="layer (0: embeddings)",
            ylabel="layer (0: embeddings)",
            first=(0, 0),
        ),
        LayerCurves(
            "loss increase without it, nats",
            lambda r: {
                part: r.values_by_layer(_loss_increase(part)) for part in ("layer", *SUBLAYERS)
            },
            has_embeddings=False,
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        model, probe = inputs.model, prediction_probe(inputs)
        full, word_states = probe.evaluate(), compute_word_states(inputs)
        cka = np.array([[linear_cka(a, b) for b in word_states.states] for a in word_states.states])
        layers = range(model.num_layers)
        findings = Findings(inputs.seed)
        for layer in layers:
            findings.add_value("CKA with the layer before", cka[layer, layer + 1], layer=layer)
        losses: dict[str, FloatArray] = {}
        for name in ("layer", *SUBLAYERS):
            losses[name] = np.zeros((model.num_layers, len(inputs.texts)))
            for layer in layers:
                with remove_part(model, layer, name):
                    losses[name][layer] = probe.evaluate().loss
            findings.add_loss_increases(
                _loss_increase(name),
                losses[name],
                full.loss,
                full.num_targets,
                ((layer, None) for layer in layers),
            )
        return AnalysisResult(findings, {"cka": cka, **losses, "full": full.loss})


def _loss_increase(part: str) -> str:
    return f"loss increase without {part.replace('_', '-')}"


def remove_part(model: AnalysedModel, layer: int, part: str) -> AbstractContextManager[None]:
    """Skip a ``layer``, or zero the output of its attention or feed-forward part."""
    if part == "layer":
        return model.encoder.skip_block(layer)
    zero = torch.zeros(1, device=model.text_model.device)
    return model.encoder.gate({f"blocks.{layer}.{part}.output": zero})


def linear_cka(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return the linear CKA between states (N, D) and (N, E) of the same words.

    It is 1 for states that are equal up to rotation and scale; 0 on average for independent states,
    for any N; nan if all words are equal or N < 4 (Kornblith et al. 2019, with the unbiased
    estimator of Song et al. 2012, equation 5, for each term).
    """
    a, b = (np.asarray(x, np.float64) - x.mean(0) for x in (first, second))
    if len(a) < 4:
        return float("nan")
    norms = _unbiased_hsic(a, a), _unbiased_hsic(b, b)
    return float(_unbiased_hsic(a, b) / np.sqrt(norms[0] * norms[1])) if min(norms) > 0 else np.nan


def _unbiased_hsic(a: FloatArray, b: FloatArray) -> float:
    """Return the unbiased HSIC of centred states of the same words."""
    number, (norms_a, norms_b) = len(a), (np.einsum("nd,nd->n", x, x) for x in (a, b))
    pairs = np.linalg.norm(a.T @ b) ** 2 - norms_a @ norms_b * number / (number - 2)
    return float(pairs + norms_a.sum() * norms_b.sum() / ((number - 1) * (number - 2)))
