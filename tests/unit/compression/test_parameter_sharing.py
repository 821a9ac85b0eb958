"""Parameter sharing and factorised embeddings: equal blocks and low-rank tables lose nothing."""

import pytest
import torch

from bertwright.compression.parameter_sharing import ParameterSharing
from bertwright.compression.vocabulary.narrower_embeddings import factorise_embeddings
from bertwright.core.errors import UserError
from bertwright.models.model import Model
from small_encoders import Pretrained
from toy_recipes import VOCABULARY, shaken, toy

LAYERS = 3
TOKEN_IDS = torch.randint(5, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(0))


def random_model(system: str, *changes: str) -> Model:
    recipe = toy(system, f"encoder.depth.layers={LAYERS}", *changes)
    return shaken(Model.build(recipe, VOCABULARY), 0.1).eval()


@torch.no_grad()
def states(model: Model) -> torch.Tensor:
    return model.encoder.double()(TOKEN_IDS)


@pytest.mark.parametrize("modules", ["all", "attention", "feed-forward"])
@pytest.mark.parametrize(("system", "init"), [("bert", "mean"), ("bert", 2), ("performer", "mean")])
def test_equal_blocks_lose_nothing(system: str, modules: str, init: str | int) -> None:
    model = random_model(system)
    first = model.encoder.blocks[0].state_dict()
    for block in model.encoder.blocks:
        block.load_state_dict(first)
    shared = ParameterSharing(modules=modules, init=init).share_blocks(model)
    torch.testing.assert_close(states(shared), states(model), rtol=0, atol=1e-6)
    assert shared.recipe.encoder.depth.sharing == modules
    sizes = [sum(p.numel() for p in m.parameters()) for m in (shared, model)]
    assert sizes[0] < sizes[1]


def test_shared_weights_start_as_the_mean_or_as_one_block() -> None:
    model = random_model("bert")
    name = "sublayers.{}.weight"
    attention, feed_forward = (name.format(n) for n in ("attention.output", "feed_forward.up"))
    blocks = [dict(block.named_parameters()) for block in model.encoder.blocks]
    for init in ("mean", 3):
        shared = ParameterSharing(modules="attention", init=init).share_blocks(model)
        shared_blocks = [dict(block.named_parameters()) for block in shared.encoder.blocks]
        mean = torch.stack([block[attention] for block in blocks]).mean(0)
        expected = mean if init == "mean" else blocks[2][attention]
        assert shared_blocks[0][attention].equal(expected)
        assert shared_blocks[0][attention] is shared_blocks[2][attention]
        for block, before in zip(shared_blocks, blocks, strict=True):
            assert block[feed_forward].equal(before[feed_forward])


@pytest.mark.parametrize("system", ["bert", "roberta", "gpt", "modernbert", "t5", "performer"])
def test_low_rank_tables_lose_nothing(system: str) -> None:
    model = random_model(system)
    width, rank = model.recipe.encoder.width, 6
    generator = torch.Generator().manual_seed(1)
    basis = torch.randn(rank, width, generator=generator)
    for table in model.encoder.embeddings.parameters():
        if table.shape[1:] == (width,):
            table.data = torch.randn(len(table), rank, generator=generator) @ basis
    # Centred vectors have at most the same rank.
    factorised = factorise_embeddings(model, rank + 1)
    assert factorised.embedding_table.shape == (VOCABULARY, rank + 1)
    torch.testing.assert_close(states(factorised), states(model), rtol=1e-4, atol=1e-4)


def test_wider_factors_are_more_exact() -> None:
    model = random_model("bert")
    errors = [
        float((states(factorise_embeddings(model, width)) - states(model)).square().mean())
        for width in (4, 16, 31)
    ]
    assert errors == sorted(errors, reverse=True)


def test_embeddings_are_reduced_to_a_width_of_at_least_two(pretrained: Pretrained) -> None:
    model = pretrained()
    for reduction, width in ((2, 16), (5, 6), (16, 2), (32, 2)):
        small = ParameterSharing(embedding_reduction=reduction).apply(model)
        assert small.model.embedding_table.shape[1] == width
        assert small.tokenizer is model.tokenizer
    for width in (1, 32):
        with pytest.raises(UserError, match=f"width {width} are not narrower than 32"):
            factorise_embeddings(model.model, width)


@pytest.mark.parametrize("change", ["embeddings.scaled=true", "embeddings.query_vector=true"])
def test_embeddings_that_are_no_sum_of_tables_are_refused(change: str) -> None:
    with pytest.raises(UserError, match="only embeddings that are a sum of learned tables"):
        factorise_embeddings(random_model("bert", f"encoder.{change}"), 8)


@pytest.mark.parametrize(
    ("system", "sharing", "message"),
    [
        ("bert", ParameterSharing(init=9), "there is no block 9"),
        ("albert", ParameterSharing(embedding_reduction=2), "leave embedding_reduction out"),
        ("transformer", ParameterSharing(embedding_reduction=2), "leave embedding_reduction out"),
        ("elmo", ParameterSharing(), "sharing to none"),
    ],
)
def test_impossible_sharing_is_refused(
    system: str, sharing: ParameterSharing, message: str, pretrained: Pretrained
) -> None:
    with pytest.raises(UserError, match=message):
        sharing.apply(pretrained(system))
