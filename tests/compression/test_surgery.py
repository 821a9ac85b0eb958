"""What is left when heads and units are taken out is what it was with them gated away."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.analysis.asking import Asking
from bertwright.analysis.planted.models import small_case
from bertwright.analysis.removal.gates import gated, open_gates
from bertwright.analysis.removal.importance import importances
from bertwright.analysis.subject import Subject
from bertwright.compression.structure import kept_parts
from bertwright.compression.surgery import Kept, cut_model, cut_weights
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.folder import load_model, save_model
from bertwright.model.text_model import TextModel
from recipes_at_toy_size import VOCABULARY, shaken, toy

HEADS = ((1,), (0,))
UNITS = ((0, 3, 4), (2, 5))


def whole(system: str, *changes: str) -> tuple[EncoderChoice, Encoder]:
    recipe = toy(system, *changes)
    return recipe.encoder, shaken(Model.build(recipe, VOCABULARY).encoder.double(), 0.1).eval()


def gated_away(encoder: Encoder, kept: Kept) -> ExitStack:
    stack = ExitStack()
    for block, sublayers in enumerate(encoder.blocks):
        if kept.heads is not None:
            gate = torch.zeros(encoder.heads, 1, 1, dtype=torch.float64)
            gate[list(kept.heads[block])] = 1
            stack.enter_context(encoder.gate({f"blocks.{block}.attention.context": gate}))
        if kept.units is not None:
            gate = torch.zeros(sublayers.sublayers["feed_forward"].down.in_features).double()
            gate[list(kept.units[block])] = 1
            stack.enter_context(encoder.gate({f"blocks.{block}.feed_forward.activation": gate}))
    return stack


CUT = ["bert", "roberta", "gpt", "gpt-2", "modern", "modernbert", "spanbert", "xlm"]


@pytest.mark.parametrize("kept", [Kept(HEADS), Kept(units=UNITS), Kept(HEADS, UNITS)])
@pytest.mark.parametrize("system", [*CUT, "albert"])
def test_what_is_left_is_what_was_gated(system: str, kept: Kept) -> None:
    if system == "albert":
        kept = Kept(*(None if own is None else own[:1] * 2 for own in (kept.heads, kept.units)))
    choice, encoder = whole(system)
    pieces = torch.randint(5, VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(0))
    with gated_away(encoder, kept):
        expected = encoder(pieces)
    left = kept.cut(choice)
    small = Encoder(left, VOCABULARY).double().eval()
    small.load_state_dict(cut_weights(encoder.state_dict(), choice, kept, prefix=""))
    torch.testing.assert_close(small(pieces), expected, rtol=0, atol=1e-12)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in encoder.parameters())


@pytest.mark.parametrize(
    ("system", "kept", "wrong"),
    [
        ("t5", Kept(HEADS), "cut.heads needs plain attention"),
        ("performer", Kept(HEADS), "cut.heads needs plain attention"),
        ("longformer-char", Kept(HEADS), "visibility to one rule for all"),
        ("mobilebert", Kept(HEADS), "bottleneck to null"),
        ("mobilebert", Kept(units=UNITS), "one feed_forward in a block, and there are 4 in one"),
        ("elmo", Kept(units=UNITS), "one feed_forward in a block, and there are 0 in one"),
        ("albert", Kept(UNITS[:1] * 2, ((1,), (1, 2))), "blocks 0 and 1 share theirs"),
        ("bert", Kept(((1,), ())), "leaves nothing of block 1"),
        ("bert", Kept(((1,),)), "are of 1 blocks, and there are 2"),
    ],
)
def test_what_cannot_be_taken_out_is_said(system: str, kept: Kept, wrong: str) -> None:
    with pytest.raises(UserError, match=wrong):
        kept.cut(toy(system).encoder)


def test_a_model_that_is_cut_is_a_model(tmp_path: Path) -> None:
    case = small_case()
    model, tokenizer = case.subject.text_model.model, case.subject.tokenizer
    importance = importances(Asking(case.subject, case.texts))
    kept = Kept(kept_parts(importance, 0.5))
    small = cut_model(model, kept)
    assert sum(map(len, kept.heads or ())) == importance.size / 2
    gates = open_gates(case.subject) * 0
    for layer, heads in enumerate(kept.heads or ()):
        gates[layer, list(heads)] = 1
    with gated(case.subject, gates):
        expected = Asking(case.subject, case.texts).asked().loss
    subject = Subject("small", TextModel(small.double(), tokenizer, "float32"))
    np.testing.assert_allclose(Asking(subject, case.texts).asked().loss, expected, rtol=1e-12)
    save_model(tmp_path / "small", small, tokenizer)
    again, _ = load_model(tmp_path / "small")
    assert again.recipe == small.recipe
    assert {n: t.shape for n, t in again.state_dict().items()} == {
        n: t.shape for n, t in small.state_dict().items()
    }


def test_a_model_whose_blocks_share_is_cut_once() -> None:
    model = Model.build(toy("albert"), VOCABULARY)
    small = cut_model(model, Kept(HEADS[:1] * 2, UNITS[:1] * 2))
    down = "encoder.blocks.0.sublayers.feed_forward.down.weight"
    known = model.state_dict()[down]
    assert torch.equal(small.state_dict()[down], known[:, list(UNITS[0])])


def test_no_layer_loses_its_last_head() -> None:
    importance = np.array([[0.1, 0.2, 0.3], [3.0, 2.0, 1.0]])
    assert kept_parts(importance, 0.5) == [[2], [0, 1]]
    assert kept_parts(importance, 1.0) == [[2], [0]]
    assert kept_parts(importance, 0.0) == [[0, 1, 2], [0, 1, 2]]
