"""Value embeddings: token embeddings that are added to the values of attention."""

from contextlib import ExitStack

import pytest
import torch
from torch import Tensor

from bertwright.encoder.value_embeddings import ValueEmbeddings
from bertwright.models import Model
from bertwright.models.costs import flops_per_token, num_parameters_by_part
from bertwright.modules.attention.cache import KeyValueCache
from bertwright.modules.attention.mask import CausalVisibility
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import VOCABULARY, shaken, toy

DEPTH = "encoder.depth.layers=5"
TABLES = [0, 1, None, 0, 1]
"""The tables of five blocks with two tables."""


def build_model(*changes: str) -> Model:
    return shaken(Model.build(toy("modern", DEPTH, *changes), VOCABULARY).double(), 0.3)


def value_embeddings_of(model: Model) -> ValueEmbeddings:
    assert model.encoder.value_embeddings is not None
    return model.encoder.value_embeddings


def random_tokens() -> Tensor:
    return torch.randint(5, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_hidden_states_follow_the_equation() -> None:
    """In head h of block b the values are W x + factor_b table_b[token], at the columns of h."""
    model, plain = build_model("encoder.value_embeddings={tables: 2}"), build_model()
    plain.load_state_dict(model.state_dict(), strict=False)
    tables, factors = value_embeddings_of(model).tables, value_embeddings_of(model).factors
    used = iter(range(4))
    with ExitStack() as stack:
        for block, table in enumerate(TABLES):
            if table is None:
                continue
            rows = factors[next(used)] * tables[table].weight[random_tokens()]
            heads = rows.view(3, 9, plain.encoder.num_heads, -1).transpose(1, 2)

            def add(value: Tensor, heads: Tensor = heads) -> Tensor:
                return value + heads

            stack.enter_context(plain.encoder.replace(f"blocks.{block}.attention.value", add))
        expected = plain.encoder(random_tokens())
    states = model.encoder(random_tokens())
    torch.testing.assert_close(states, expected, atol=1e-12, rtol=1e-12)
    assert not torch.allclose(states, plain.encoder(random_tokens()))


@pytest.mark.parametrize("tables", [1, 2])
def test_parameters_and_flops(tables: int) -> None:
    """Lookups and sums are no matrix products."""
    plain, recipe = (
        toy("modern", DEPTH),
        toy("modern", DEPTH, f"encoder.value_embeddings={{tables: {tables}}}"),
    )
    added = {"value_embeddings": tables * VOCABULARY * 32 + 2 * tables}
    assert num_parameters_by_part(recipe) == num_parameters_by_part(plain) | added
    assert flops_per_token(recipe) == flops_per_token(plain)


def test_gradients_reach_the_tables_and_factors() -> None:
    model = build_model("encoder.value_embeddings={tables: 2}")
    model.encoder(random_tokens()).square().sum().backward()
    embeddings = value_embeddings_of(model)
    assert (embeddings.factors.grad != 0).all()
    for table in embeddings.tables:
        rows = table.weight.grad.abs().sum(1).nonzero().flatten()
        assert rows.tolist() == random_tokens().unique().tolist()


@torch.no_grad()
def test_query_streams_read_no_value_embeddings() -> None:
    embeddings = value_embeddings_of(build_model("encoder.value_embeddings={}"))
    is_query = torch.arange(9)[None].expand(3, 9) >= 6
    info = TokenInfo(torch.arange(9)[None], is_query_stream=is_query)
    first, *_, last = embeddings(random_tokens(), info)
    for values in (first, last):
        assert values[:, :6].abs().min() > 0
        assert not values[:, 6:].any()


@torch.no_grad()
def test_cached_parts_equal_one_pass() -> None:
    model, rule = build_model("encoder.value_embeddings={tables: 2}"), CausalVisibility()
    whole = model.encoder(random_tokens(), visibility=rule)
    cache, parts = KeyValueCache(), []
    for start, stop in [(0, 4), (4, 5), (5, 9)]:
        info = TokenInfo(torch.arange(start, stop)[None])
        tokens = random_tokens()[:, start:stop]
        parts.append(model.encoder(tokens, info, rule, memory=cache))
    torch.testing.assert_close(torch.cat(parts, 1), whole)
