"""Copies, and a copy of which one layer was changed."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch

from bertwright.analysis.analysis import Case
from bertwright.analysis.dynamics.change import Change
from bertwright.analysis.dynamics.effective_context import EffectiveContext
from bertwright.analysis.findings import Found
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import WORDS, small_case
from bertwright.analysis.subject import Subject


def change() -> Iterator[Expected]:
    """A copy has changed in nothing, and otherwise in the layer that was changed."""
    case = _with_twin()
    found = Change().run(case)
    yield equal("parameters of a copy", _layers_of(found, "change of parameters"), 0)
    for metric in ("cosine of attention", "cosine of states", "likeness"):
        yield equal(f"{metric} of a copy", _layers_of(found, metric), 1)
    assert case.other is not None
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in case.other.encoder.blocks[2].parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += 0.5 * parameter.std(correction=0) * noise
    found = Change().run(case)
    gone, alike = (_layers_of(found, metric) for metric in ("change of parameters", "likeness"))
    yield equal("layers before the one that was changed", gone[:2], 0)
    yield above("the layer that was changed", gone[2], 0.2)
    yield equal("states before it", alike[:3], 1)
    yield below("states behind it", alike[3], 0.99)


def effective_context() -> Iterator[Expected]:
    """A model that sees no other place loses nothing by a shorter context."""
    texts = [" ".join(WORDS[n : n + 12]) for n in range(6)]
    case = small_case("bert", "encoder.positions={kind: none}", texts=texts)
    with torch.no_grad():
        for name, parameter in case.subject.encoder.blocks.named_parameters():
            if "attention.output" in name:
                parameter.zero_()
    found = EffectiveContext(longest=8).run(case)
    losses = found.arrays["losses"]
    yield same("contexts", found.arrays["contexts"].tolist(), [1, 2, 4, 8])
    yield equal("losses by context", losses, losses[:1].repeat(4, 0), 1e-9)


def _with_twin() -> Case:
    case = small_case("bert", "encoder.depth.layers=3")
    return replace(case, other=Subject("twin", copy.deepcopy(case.subject.text_model)))


def _layers_of(found: Found, metric: str) -> list[float]:
    return [own.value for own in found.findings if own.metric.startswith(metric)]
