"""Effective attention: the same output, also where only what came before is seen."""

import pytest
import torch

from bertwright.analysis.identifiability.effective import effective, head_outputs
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example

ALL = torch.ones(1, 20, 20, dtype=torch.bool)


def planted(length: int = 20, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, length, length, generator=generator, dtype=torch.float64).softmax(-1)
    return weights, torch.randn(2, length, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_written_stays_the_same(constrained: bool, causal: bool) -> None:
    weights, written = planted()
    seen = ALL.tril() if causal else ALL
    weights = weights * seen
    weights = weights / weights.sum(-1, keepdim=True)
    found, rank = effective(weights, written, seen, constrained)
    assert (found @ written - weights @ written).abs().max() < 1e-10
    assert not found[~seen.expand_as(found)].any()
    assert rank.tolist() == [4 + constrained] * 2
    sums = found.sum(-1)
    assert ((sums - 1).abs().max() < 1e-12) == constrained
    twice, _ = effective(found, written, seen, constrained)
    torch.testing.assert_close(twice, found, rtol=1e-10, atol=1e-12)


@pytest.mark.processor
def test_a_move_in_the_null_space_changes_nothing_in_the_model() -> None:
    subject = small_subject()
    (text,) = read_texts(subject, [Example(" ".join(WORDS[:18]))])
    pieces = torch.tensor([text.pieces])
    with torch.inference_mode(), subject.encoder.record("blocks.1.attention.*") as values:
        expected = subject.encoder(pieces)
    weights, value = (values[f"blocks.1.attention.{n}"][0].double() for n in ("weights", "value"))
    found, _ = effective(
        weights, value @ head_outputs(subject, 1), ALL[:, : len(text), : len(text)]
    )
    assert (found - weights).abs().max() > 1e-3
    with (
        torch.inference_mode(),
        subject.encoder.replace("blocks.1.attention.weights", lambda w: found[None].to(w.dtype)),
    ):
        torch.testing.assert_close(subject.encoder(pieces), expected, rtol=1e-6, atol=1e-7)
