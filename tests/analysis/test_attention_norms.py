"""Attention by what it brings: parts that add up to the whole."""

import pytest
import torch

from bertwright.analysis.identifiability.effective import head_outputs
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


@pytest.mark.processor
def test_lengths_are_those_of_what_is_written_and_parts_add_up() -> None:
    subject = small_subject()
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
    torch.testing.assert_close(total, output, rtol=1e-6, atol=1e-9)
