"""Systems that reduce to another system compute the same."""

import pytest
import torch
from torch import Tensor

from bertwright.models import Model
from bertwright.modules.attention.mask import CausalVisibility, PermutationVisibility
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import LENGTH, VOCABULARY, shaken, toy, toy_batches


def build_model(system: str, *changes: str) -> Model:
    """Build a model in float64 with random parameters."""
    model = Model.build(toy(system, *changes), VOCABULARY).double()
    return shaken(model, 0.3).requires_grad_(False)


def random_tokens(num_sequences: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_sequences, LENGTH), generator=generator)


def assert_equal(mixed_loss: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mixed_loss, other, atol=1e-9, rtol=1e-9)


def test_xlnet_in_text_order_equals_transformer_xl() -> None:
    xlnet = build_model("xlnet")
    other = Model.build(
        toy(
            "transformer-xl",
            "encoder.memory_length=0",
            "encoder.embeddings.scaled=false",
            "encoder.positions.untied=true",
            "encoder.feed_forward.kind=gelu",
            f"encoder.norm.epsilon={xlnet.recipe.encoder.norm.epsilon}",
        ),
        VOCABULARY,
    ).double()
    parameters = xlnet.encoder.state_dict()
    missing, unused = other.encoder.load_state_dict(parameters, strict=False)
    assert not missing
    assert all("segment" in name or "query_vector" in name for name in unused)
    positions = torch.arange(LENGTH)[None]
    order = TokenInfo(positions, factorisation_order=positions.expand(2, -1))
    assert_equal(
        xlnet.encoder(random_tokens(), order, PermutationVisibility()),
        other.encoder(random_tokens(), visibility=CausalVisibility()),
    )


def test_causal_steps_of_gpt_bert_equal_a_causal_model() -> None:
    mixed = build_model("gpt-bert")
    causal_only = Model.build(
        toy("gpt-bert", "objectives.masked=null", "objectives.causal.fraction=null"), VOCABULARY
    ).double()
    causal_only.load_state_dict(mixed.state_dict())
    groups = mixed.recipe.objective_schedule(0)
    (number,) = [n for n, group in enumerate(groups) if "causal" in group.objectives]
    batch = toy_batches(mixed.recipe, 0)[number]
    (single,) = toy_batches(causal_only.recipe, 0)
    assert torch.equal(batch.token_ids, single.token_ids)
    mixed_loss = mixed.losses(batch, groups[number].objectives)["causal"]
    other = causal_only.losses(single, causal_only.recipe.objectives)["causal"]
    assert mixed_loss.count == other.count
    assert_equal(mixed_loss.sum, other.sum)


def test_masked_steps_of_gpt_bert_predict_one_position_before() -> None:
    model = build_model("gpt-bert", "output.z_loss=0")
    group = model.recipe.objective_schedule(0)[0]
    batch = toy_batches(model.recipe, 0)[0]
    (targets,) = batch.targets.values()
    states = model.encoder(batch.token_ids, batch.token_info).flatten(0, 1)
    logits = model.logits(states[targets.positions - 1])
    errors = torch.nn.functional.cross_entropy(logits, targets.labels, reduction="none")
    weight = torch.ones_like(errors) if targets.weights is None else targets.weights
    loss = model.losses(batch, group.objectives)["masked"]
    torch.testing.assert_close(loss.sum.double(), (errors * weight).sum())


def test_albert_with_one_group_per_block_equals_bert() -> None:
    bert = build_model("bert")
    embeddings = "{kind: factorised, width: 32, segments: 2, norm: true}"
    albert = Model.build(
        toy("bert", f"encoder.embeddings={embeddings}", "encoder.depth={sharing: all, groups: 2}"),
        VOCABULARY,
    ).double()
    albert.load_state_dict(bert.state_dict())
    assert_equal(albert(random_tokens()), bert(random_tokens()))


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
@pytest.mark.parametrize(
    "depth", ["{kind: sublayers, order: sfsf}", "{kind: sandwich, layers: 2, outside: 0}"]
)
def test_alternating_sublayers_equal_a_plain_stack(system: str, depth: str) -> None:
    plain = build_model(system)
    reordered = Model.build(toy(system, f"encoder.depth={depth}"), VOCABULARY).double()

    def sublayer_name(name: str) -> str:
        """Return the name in the reordered stack: block i becomes blocks 2 i and 2 i + 1."""
        head, number, rest = name.split(".", 2)
        return f"{head}.{2 * int(number) + ('feed_forward' in rest)}.{rest}"

    reordered.encoder.load_state_dict(
        {
            sublayer_name(name) if name.startswith("blocks.") else name: tensor
            for name, tensor in plain.encoder.state_dict().items()
        }
    )
    assert_equal(reordered(random_tokens()), plain(random_tokens()))
