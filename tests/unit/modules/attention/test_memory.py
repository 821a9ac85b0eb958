"""A text read in parts with memory gives the same hidden states as one pass."""

from typing import Literal

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import CausalVisibility, GlobalVisibility, Visibility
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import VOCABULARY, shaken, toy

LENGTH, PARTS = 8, 5
KINDS = (
    "transformer-xl",
    "{kind: transformer-xl, untied: true}",
    "rotary",
    "alibi",
    "bucketed",
    "{kind: bucketed, gated: true}",
    "log-buckets",
    "none",
)


class Banded(Visibility):
    """The visibility of parts of ``LENGTH`` tokens with a memory of this length."""

    kind: Literal["banded"] = "banded"
    memory: int

    def visible(self, query, key):
        return (key.index <= query.index) & (
            key.index >= query.index // LENGTH * LENGTH - self.memory
        )


def build_model(positions: str, *overrides: str) -> Model:
    kind = positions if positions.startswith("{") else f"{{kind: {positions}}}"
    recipe = toy("transformer-xl", f"encoder.positions={kind}", *overrides)
    return shaken(Model.build(recipe, VOCABULARY), 0.1)


def random_tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (3, LENGTH * PARTS), generator=generator)


def read_in_parts(model: Model, memory: int, text: torch.Tensor) -> torch.Tensor:
    state = Memory.empty(memory, text)
    states: list[torch.Tensor] = []
    for part in text.split(LENGTH, dim=1):
        states.append(model.encoder(part, visibility=CausalVisibility(), memory=state))
        state = state.next_memory(TokenInfo.from_token_ids(part))
    return torch.cat(states, dim=1)


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
@pytest.mark.parametrize("memory", [4, 8, 12, 64])
@pytest.mark.parametrize("positions", KINDS)
def test_parts_with_memory_are_one_banded_pass(positions: str, memory: int, kernel: str) -> None:
    model = build_model(positions, f"encoder.mixer.kernel={kernel}")
    states = read_in_parts(model, memory, random_tokens())
    expected = model.encoder(random_tokens(), visibility=Banded(memory=memory))
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_memory_is_normalised_like_the_sequence(placement: str) -> None:
    model = build_model("transformer-xl", f"encoder.norm.placement={placement}")
    states = read_in_parts(model, 64, random_tokens())
    torch.testing.assert_close(states, model.encoder(random_tokens()), atol=1e-5, rtol=1e-5)


def test_no_gradient_flows_into_memory() -> None:
    model = build_model("transformer-xl")
    inputs: list[torch.Tensor] = []

    def record_input(x: torch.Tensor) -> torch.Tensor:
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    with model.replace("embeddings.output", record_input):
        states = read_in_parts(model, 8, random_tokens()[:, : 2 * LENGTH])
    states[:, LENGTH:].square().sum().backward()
    assert not inputs[0].grad.any()
    assert inputs[1].grad.abs().sum() > 0


def test_an_empty_memory_is_masked() -> None:
    model = build_model("transformer-xl")
    part = random_tokens()[:, :LENGTH]
    with_memory = model.encoder(part, memory=Memory.empty(16, part))
    torch.testing.assert_close(with_memory, model.encoder(part), atol=1e-6, rtol=1e-6)


def test_padding_is_not_remembered() -> None:
    model = build_model("transformer-xl")
    first, second = random_tokens()[:, :LENGTH], random_tokens()[:, LENGTH : 2 * LENGTH]
    document_ids = torch.zeros(3, LENGTH, dtype=torch.int64)
    document_ids[:, :3] = -1
    padded = TokenInfo(torch.arange(LENGTH)[None], document_ids=document_ids)
    states = []
    for tokens in (first, torch.cat((second[:, :3], first[:, 3:]), dim=1)):
        memory = Memory.empty(LENGTH, tokens)
        model.encoder(tokens, padded, memory=memory)
        states.append(model.encoder(second, memory=memory.next_memory(padded)))
    torch.testing.assert_close(states[0], states[1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    ["encoder.mixer.global_projections=true", "encoder.visibility={kind: short, length: 9}"],
)
def test_rules_that_need_the_whole_text_reject_memory(change: str) -> None:
    with pytest.raises(UserError, match="keeps the end of a text without its start"):
        toy("transformer-xl", "encoder.positions=rotary", change)


def test_memory_is_not_the_beginning_of_a_text() -> None:
    part = random_tokens()[:, :LENGTH]
    keys = Memory({}, torch.zeros(3, 4, dtype=torch.int64)).extend_token_info(
        TokenInfo.from_token_ids(part)
    )
    allowed = GlobalVisibility(first=1).visible(
        TokenInfo.from_token_ids(part).as_queries(), keys.as_keys()
    )
    assert allowed[0, 1].tolist() == [False] * 4 + [True] + [False] * (LENGTH - 1)
