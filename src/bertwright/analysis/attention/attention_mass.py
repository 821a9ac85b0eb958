"""Attention mass on special tokens, punctuation and neighbours (Clark et al. 2019)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.core.activations import ActivationBatch, Measured, Measurements
from bertwright.analysis.core.analysis import AnalysisInput, StreamingAnalysis
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves, values_by_head
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings, StoredResult
from bertwright.core.significance import FloatArray

AttendedToken = Literal["opening", "separator", "punctuation", "self", "previous", "next"]

ATTENDED_TOKENS: tuple[AttendedToken, ...] = get_args(AttendedToken)

OFFSETS: dict[AttendedToken, int] = {"self": 0, "previous": -1, "next": 1}

MAJORITY = 0.5


def _num_strong_heads(target: str, result: StoredResult) -> Mapping[str, Any]:
    is_strong = result.values_by_head(target) > MAJORITY
    return result.counted_finding(int(is_strong.sum()), is_strong.size, "heads")


class AttentionMass(StreamingAnalysis):
    """The fraction of attention that goes to each kind of token.

    The fraction is averaged over the positions of a text, then over texts. The baseline is a head
    with uniform attention over its allowed positions (section 3.1).
    """

    kind: Literal["attention-mass"] = "attention-mass"
    survey_id = "B2"
    title = "How much attention goes to special tokens, punctuation and neighbours?"
    source = "Clark et al. 2019"
    taps = ("blocks.*.attention.weights",)
    claims = (
        Claim(
            "separators get more than uniform attention gives them, in the second half of the "
            "layers",
            "over half of the attention of layers 6 to 10 of BERT-base",
            "separator, second half",
            None,
        ),
        Claim(
            "the first position gets more than uniform attention gives it, in the first half of "
            "the layers",
            "most of layers 1 and 2 of BERT-base",
            "opening, first half",
            None,
        ),
        *(
            Claim(
                f"some heads give more than half of their attention to the {target} position",
                f"{published} of 144 heads",
                partial(_num_strong_heads, target),
                baseline_name="none",
            )
            for target, published in (("previous", 4), ("next", 5))
        ),
    )
    plots = (
        LayerCurves(
            "fraction of attention", values_by_head(*ATTENDED_TOKENS[:3]), has_embeddings=False
        ),
        LayerCurves(
            "fraction of attention", values_by_head(*ATTENDED_TOKENS[3:]), has_embeddings=False
        ),
    )

    def measure(self, inputs: AnalysisInput, batch: ActivationBatch) -> Measurements:
        columns = batch.category_columns("opening", "separator", "punctuation")
        mass: list[FloatArray] = []
        uniform: list[FloatArray] = []
        for layer in range(inputs.model.num_layers):
            mass.append(attention_mass(batch.attention(layer), columns, batch.lengths))
            of_uniform = attention_mass(batch.uniform_attention(layer), columns, batch.lengths)
            uniform.append(np.broadcast_to(of_uniform, mass[-1].shape))
        return {"mass": np.stack(mass, 1), "uniform": np.stack(uniform, 1)}

    def summarise(self, inputs: AnalysisInput, measured: Measured) -> AnalysisResult:
        mass, uniform = np.array(measured["mass"]), np.array(measured["uniform"])
        findings = Findings(inputs.seed)
        findings.add_by_head(ATTENDED_TOKENS, mass, ("uniform", uniform.mean(0)))
        for name, half in layer_halves(mass.shape[1]).items():
            by_text, baseline = (m[:, half].mean((1, 2)) for m in (mass, uniform))
            for number, target in enumerate(ATTENDED_TOKENS):
                uniform_mean = BaselineValue("uniform", float(baseline[:, number].mean()))
                findings.add_ratio(f"{target}, {name}", by_text[:, number], baseline=uniform_mean)
        return AnalysisResult(findings, {"mass": mass.mean(0), "uniform": uniform.mean(0)})


def mass_by_layer(*names: str) -> Callable[[StoredResult], dict[str, FloatArray]]:
    """Return curves of the attention to special tokens and punctuation, in these arrays."""
    return lambda result: {
        f"{target}, {name}": result.arrays[name][..., n].mean(1)
        for n, target in enumerate(ATTENDED_TOKENS[:3])
        for name in names
    }


def layer_halves(num_layers: int) -> dict[str, slice]:
    """Return the layers of the lower and the upper half; a layer in the middle is in both."""
    return {
        "first half": slice(0, -(-num_layers // 2)),
        "second half": slice(num_layers // 2, num_layers),
    }


def attention_mass(weights: Tensor, category_masks: Tensor, lengths: Tensor) -> FloatArray:
    """Return the attention mass (B, H, 6) of weights (B, H, L, L), 0 for padding.

    The last dimension holds the categories (B, L, 3), then the position itself, the previous and
    the next one.
    """
    received, category_masks = weights.sum(2), category_masks.to(weights)
    marked = torch.einsum("bhl,blm->bhm", received, category_masks)
    neighbours = [
        torch.diagonal(weights, OFFSETS[target], -2, -1).sum(-1) for target in ATTENDED_TOKENS[3:]
    ]
    mass = torch.cat([marked, torch.stack(neighbours, -1)], -1) / lengths[:, None, None]
    return mass.double().cpu().numpy()
