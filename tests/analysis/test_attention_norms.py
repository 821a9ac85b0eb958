"""Attention by what it brings: parts that add up to the whole."""

import pytest
import torch

from bertwright.analysis.identifiability.effective import head_outputs, lacks_head_outputs
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


@pytest.mark.parametrize(
    "changes", [[], ["encoder.norm.placement=sub"], ["encoder.mixer.gate=gelu"]]
)
@pytest.mark.parametrize("system", ["bert", "gpt-2", "gpt-bert"])
@pytest.mark.processor
def test_lengths_are_those_of_what_is_written_and_parts_add_up(
    system: str, changes: list[str]
) -> None:
    subject = small_subject(system, *changes)
    (text,) = read_texts(subject, [Example(SENTENCES[0])])
    names = ("weights", "value", "output")
    with torch.inference_mode(), subject.encoder.record("blocks.1.attention.*") as values:
        subject.encoder(torch.tensor([text.pieces]))
    weights, value, output = (values[f"blocks.1.attention.{n}"][0].double() for n in names)
    module = subject.encoder.blocks[1].get_submodule("sublayers.attention.output")
    by_head = module.weight.detach().T.unflatten(0, (subject.num_heads, -1))
    brought = value @ by_head
    torch.testing.assert_close(
        (value @ head_outputs(subject, 1)).norm(dim=-1), brought.norm(dim=-1), rtol=1e-10, atol=0
    )
    total = torch.einsum("hij,hjd->id", weights, brought) + module.bias
    adds_up = torch.allclose(total, output, rtol=1e-6, atol=1e-9)
    assert adds_up == (lacks_head_outputs(subject) is None)
