"""Gradients of the loss with respect to attention (Clark et al. 2019, section 3.2)."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.attention.attention_mass import layer_halves
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.prediction_probe import PredictionProbe, prediction_probe
from bertwright.analysis.core.requirements import missing_plain_attention, missing_predictions
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.significance import FloatArray
from bertwright.models.text_batches import TextBatch

WEIGHTS_TAP = "attention.weights"

TOKEN_GROUPS = ("opening", "separator", "words")


class AttentionGradients(Analysis):
    """The mean absolute gradient of the loss with respect to each head's weights.

    The mean is over all allowed queries of a text, and over keys: the first position, separators,
    words.
    """

    kind: Literal["attention-slopes"] = "attention-slopes"
    survey_id = "B3"
    title = "Does the loss depend on the attention that separators get?"
    source = "Clark et al. 2019"
    taps = (f"blocks.*.{WEIGHTS_TAP}",)
    requires = (missing_predictions, missing_plain_attention)
    claims = (
        Claim(
            "in the second half of the layers the loss depends less on attention to separators "
            "than to words",
            "from layer 5 of BERT-base on, the gradient with respect to attention to "
            "separators is very small",
            "words minus separator, second half",
        ),
    )
    plots = (
        LayerCurves(
            "absolute gradient of the loss with respect to attention, nats",
            lambda r: dict(zip(TOKEN_GROUPS, r.arrays["gradient_sizes"].mean(1).T, strict=True)),
            has_embeddings=False,
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        sizes = attention_gradient_sizes(prediction_probe(inputs))
        findings = Findings(inputs.seed)
        findings.add_by_head(TOKEN_GROUPS, sizes)
        for name, half in layer_halves(sizes.shape[1]).items():
            first, separator, words = (sizes[:, half, :, n].mean((1, 2)) for n in range(3))
            baseline = BaselineValue("words", float(words.mean()))
            for target, values in (("opening", first), ("separator", separator)):
                findings.add_difference(
                    f"words minus {target}, {name}", words, values, baseline=baseline
                )
        return AnalysisResult(findings, {"gradient_sizes": sizes.mean(0)})


def attention_gradient_sizes(probe: PredictionProbe) -> FloatArray:
    """Return the mean absolute gradients of every text, (N, layers, H, targets)."""
    model = probe.model
    shape = (len(probe.texts), model.num_layers, model.num_heads, len(TOKEN_GROUPS))
    result = np.zeros(shape)
    offsets: dict[int, Tensor] = {}
    allowed: dict[int, Tensor] = {}

    def add_offset(layer: int, weights: Tensor) -> Tensor:
        # A forbidden key has weight 0, but would have a gradient.
        allowed[layer] = (weights > 0).to(weights)
        offsets[layer] = torch.zeros_like(weights).requires_grad_()
        return weights + offsets[layer]

    @contextmanager
    def within(_: TextBatch) -> Generator[None]:
        with ExitStack() as stack:
            for layer in range(model.num_layers):
                name = f"blocks.{layer}.{WEIGHTS_TAP}"
                stack.enter_context(model.encoder.replace(name, partial(add_offset, layer)))
            yield

    with torch.enable_grad():
        for indices, loss, _, _ in probe.scored_batches(within):
            leaves = [offsets[layer] for layer in range(model.num_layers)]
            # Layers that the prediction does not read have a gradient of zero.
            gradients = torch.autograd.grad(loss.sum(), leaves, materialize_grads=True)
            sizes = [gradient.abs() * allowed[layer] for layer, gradient in enumerate(gradients)]
            for index, text_index in enumerate(indices):
                columns = _token_group_masks(probe.texts[text_index]).to(leaves[0])
                span = slice(len(columns))
                for layer, layer_sizes in enumerate(sizes):
                    summed, count = (
                        values[index, :, span, span].sum(1) @ columns
                        for values in (layer_sizes, allowed[layer])
                    )
                    result[text_index, layer] = (summed / count.clamp(min=1)).double().cpu().numpy()
    return result


def _token_group_masks(text: AnalysedText) -> Tensor:
    """Return which tokens belong to each group, (T, targets)."""
    marks = text.category_masks["opening"], text.category_masks["separator"], text.word_ids >= 0
    return torch.from_numpy(np.stack(marks, 1).astype(np.float64))
