"""Encoders without output, and one that attends to the previous token only."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.attribution.attention_flow import (
    maximum_flows,
    mean_attention,
    score_changes_when_masked,
)
from bertwright.analysis.attribution.input_attribution import MaskedTokenPrediction
from bertwright.analysis.attribution.learned_masks import LearnedMasks
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.identifiability.token_mixing import input_contributions
from bertwright.tasks.formats.examples import Example
from experiments.analyses.classifiers import bag_of_tokens_model
from experiments.analyses.expecting import (
    ExpectedValue,
    expect_above,
    expect_below,
    expect_equal,
    expect_same,
)
from experiments.analyses.models import SENTENCES, WORDS, small_inputs, small_model


def expect_input_attribution() -> Iterator[ExpectedValue]:
    """Check completeness, and that every method finds the decisive token."""
    inputs = small_inputs()
    errors = [
        MaskedTokenPrediction.from_text(inputs.model, text, 0, number).attribute(128)[1]
        for number, text in enumerate(inputs.texts)
    ]
    yield expect_below("completeness error", errors, 1e-3)
    with attending_to_previous_token() as prediction:
        attributions, _ = prediction.attribute(64)
    previous = prediction.position - 1
    for method, values in attributions.items():
        others = np.delete(np.abs(values), [previous, prediction.position])
        yield expect_above(f"{method} of the decisive token", abs(values[previous]), 1e-9)
        yield expect_below(f"{method} of the others", others, 1e-12)


def expect_token_mixing() -> Iterator[ExpectedValue]:
    """Check that blocks without output leave every state to its own token."""
    model = identity_encoder()
    (text,) = encode_texts(model, [Example(SENTENCES[0])])
    for layer, fractions in enumerate(input_contributions(model, text, 2, 0)):
        yield expect_equal(f"contributions in layer {layer}", fractions, np.eye(len(text)))


def expect_flow() -> Iterator[ExpectedValue]:
    """Check flows against known capacities, and for a model with one decisive token."""
    yield expect_equal("of identity attention", maximum_flows([np.eye(4)] * 3, 2), [0, 0, 1, 0])
    generator = np.random.default_rng(0)
    first, second = (w / w.sum(1, keepdims=True) for w in generator.random((2, 5, 5)))
    edges = [(weights + np.eye(5)) / 2 for weights in (first, second)]
    expected = np.minimum(edges[1][3][:, None], edges[0]).sum(0)
    yield expect_equal("through two layers", maximum_flows([first, second], 3), expected, 1e-5)
    with attending_to_previous_token() as prediction:
        changes, (weights,) = score_changes_when_masked(prediction), mean_attention(prediction)
    flows = maximum_flows([weights], prediction.position)
    flows[prediction.position], changes[prediction.position] = 0, 0
    yield expect_same("the largest flow", int(flows.argmax()), prediction.position - 1)
    yield expect_same("the largest change", int(changes.argmax()), prediction.position - 1)


def expect_learned_masks() -> Iterator[ExpectedValue]:
    """Check that only the word that decides the class is kept."""
    generator = np.random.default_rng(0)
    others = [word for word in WORDS if word != "lamp"]
    texts = [
        " ".join(
            generator.permutation([*generator.choice(others, 5), *(["lamp"] if n % 2 else [])])
        )
        for n in range(40)
    ]
    model = bag_of_tokens_model({"lamp": 60.0}, bias=-4.0)
    inputs = AnalysisInput(model, encode_texts(model, [Example(text) for text in texts]))
    findings = LearnedMasks(steps=300, learning_rate=1e-2).run(inputs).findings
    values = {f.metric: f.value for f in findings}
    yield expect_below("fraction of tokens kept", values["fraction of tokens kept"], 0.4)
    yield expect_below("prediction change", values["prediction change, nats"], 0.2)
    difference = values["prediction change, random minus learned"]
    yield expect_above("random minus learned", difference, 0.2)


def identity_encoder() -> AnalysedModel:
    """Build an encoder whose blocks output zeros, without norms."""
    model = small_model("modern", "encoder.norm.kind=none")
    with torch.no_grad():
        for name, parameter in model.encoder.blocks.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                parameter.zero_()
    return model


@contextmanager
def attending_to_previous_token() -> Generator[MaskedTokenPrediction]:
    """Yield a prediction of a model that attends only to the token before the masked one."""
    model = small_model("bert", "encoder.depth.layers=1")
    (text,) = encode_texts(model, [Example("the keeper sees a ship")])
    prediction = MaskedTokenPrediction.from_text(model, text, 0, 0)

    def attend_to_previous(weights: Tensor) -> Tensor:
        changed = torch.zeros_like(weights)
        changed[..., prediction.position - 1] = 1
        return changed

    with model.encoder.replace("blocks.0.attention.weights", attend_to_previous):
        yield prediction
