"""Where one system with its own device switched off is another system, they compute the same."""

import pytest
import torch
from torch import Tensor

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Causal, InOrder
from bertwright.model import Model
from recipes_at_toy_size import LENGTH, VOCABULARY, shaken, toy, toy_batches


def built(system: str, *changes: str) -> Model:
    """In float64, every parameter drawn."""
    model = Model.build(toy(system, *changes), VOCABULARY).double()
    return shaken(model, 0.3).requires_grad_(False)


def pieces(num_rows: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_rows, LENGTH), generator=generator)


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


def test_what_xlnet_knows_in_the_order_of_the_text_is_a_transformer_xl() -> None:
    xlnet = built("xlnet")
    other = Model.build(
        toy(
            "transformer-xl",
            "encoder.memory=0",
            "encoder.embeddings.scaled=false",
            "encoder.positions.untied=true",
            "encoder.feed_forward.kind=gelu",
            f"encoder.norm.epsilon={xlnet.recipe.encoder.norm.epsilon}",
        ),
        VOCABULARY,
    ).double()
    known = xlnet.encoder.state_dict()
    missing, unused = other.encoder.load_state_dict(known, strict=False)
    assert not missing
    assert all("segments" in name or "asking" in name for name in unused)
    place = torch.arange(LENGTH)[None]
    order = Coordinates(place, order=place.expand(2, -1))
    same(xlnet.encoder(pieces(), order, InOrder()), other.encoder(pieces(), rule=Causal()))


def test_the_causal_turn_of_gpt_bert_is_a_causal_language_model() -> None:
    both = built("gpt-bert")
    alone = Model.build(
        toy("gpt-bert", "objectives.masked=null", "objectives.causal.share=null"), VOCABULARY
    ).double()
    alone.load_state_dict(both.state_dict())
    turns = both.recipe.turns_of(0)
    (number,) = [n for n, turn in enumerate(turns) if "causal" in turn.objectives]
    batch = toy_batches(both.recipe, 0)[number]
    (single,) = toy_batches(alone.recipe, 0)
    assert torch.equal(batch.pieces, single.pieces)
    one = both.losses(batch, turns[number].objectives)["causal"]
    other = alone.losses(single, alone.recipe.objectives)["causal"]
    assert one.count == other.count
    same(one.sum, other.sum)


def test_the_other_turn_names_a_hidden_piece_where_a_language_model_would() -> None:
    model = built("gpt-bert", "output.z_loss=0")
    turn = model.recipe.turns_of(0)[0]
    batch = toy_batches(model.recipe, 0)[0]
    (asked,) = batch.questions.values()
    states = model.encoder(batch.pieces, batch.coordinates).flatten(0, 1)
    logits = model.logits(states[asked.where - 1])
    errors = torch.nn.functional.cross_entropy(logits, asked.target, reduction="none")
    weight = torch.ones_like(errors) if asked.weight is None else asked.weight
    loss = model.losses(batch, turn.objectives)["masked"]
    torch.testing.assert_close(loss.sum.double(), (errors * weight).sum())


def test_an_albert_whose_groups_are_its_blocks_is_a_bert() -> None:
    bert = built("bert")
    whole = "{kind: factorised, width: 32, segments: 2, norm: true}"
    albert = Model.build(
        toy("bert", f"encoder.embeddings={whole}", "encoder.depth={sharing: all, groups: 2}"),
        VOCABULARY,
    ).double()
    albert.load_state_dict(bert.state_dict())
    same(albert(pieces()), bert(pieces()))


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
@pytest.mark.parametrize(
    "depth", ["{kind: sublayers, order: sfsf}", "{kind: sandwich, layers: 2, outside: 0}"]
)
def test_attention_and_feed_forward_in_turn_are_a_plain_stack(system: str, depth: str) -> None:
    plain = built(system)
    reordered = Model.build(toy(system, f"encoder.depth={depth}"), VOCABULARY).double()

    def parted(name: str) -> str:
        """Block i is the sublayers 2 i and 2 i + 1, each a block of its own."""
        head, number, rest = name.split(".", 2)
        return f"{head}.{2 * int(number) + ('feed_forward' in rest)}.{rest}"

    reordered.encoder.load_state_dict(
        {
            parted(name) if name.startswith("blocks.") else name: tensor
            for name, tensor in plain.encoder.state_dict().items()
        }
    )
    same(reordered(pieces()), plain(pieces()))
