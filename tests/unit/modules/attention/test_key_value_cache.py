"""A text read in parts with a key-value cache gives the same hidden states as one pass."""

import pytest
import torch

from bertwright.models import Model
from bertwright.modules.attention.cache import KeyValueCache
from bertwright.modules.attention.mask import (
    CausalVisibility,
    DilatedWindowVisibility,
    PermutationVisibility,
    Visibility,
    WindowVisibility,
)
from bertwright.modules.token_tensors import TokenInfo
from toy_recipes import VOCABULARY, shaken, toy

LENGTH = 14
KINDS = (
    "learned",
    "sinusoidal",
    "rotary",
    "alibi",
    "bucketed",
    "{kind: bucketed, gated: true}",
    "transformer-xl",
    "{kind: transformer-xl, untied: true, segments: true}",
    "log-buckets",
    "none",
)


def build_model(positions: str, *overrides: str, system: str = "gpt") -> Model:
    config = positions if positions.startswith("{") else f"{{kind: {positions}}}"
    return shaken(
        Model.build(toy(system, f"encoder.positions={config}", *overrides), VOCABULARY), 0.1
    )


def random_tokens(batch_size: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (batch_size, LENGTH), generator=generator)


def token_info_of(start: int, stop: int, padding: torch.Tensor) -> TokenInfo:
    """Return the attributes of tokens ``start`` to ``stop``, after (B, 1) tokens of padding."""
    index = torch.arange(start, stop)[None]
    position_ids = (index - padding).clamp(min=0)
    return TokenInfo(index, position_ids, document_ids=torch.where(index < padding, -1, 0))


@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
@pytest.mark.parametrize("positions", KINDS)
@torch.no_grad()
def test_parts_equal_one_pass(positions, kernel) -> None:
    model = build_model(positions, f"encoder.mixer.kernel={kernel}")
    padding = torch.tensor([[0], [3], [5]])
    whole = model.encoder(random_tokens(), token_info_of(0, LENGTH, padding), CausalVisibility())
    cache, states = KeyValueCache(), []
    for start, stop in [(0, 6), (6, 7), (7, 8), (8, 11), (11, LENGTH)]:
        token_info = token_info_of(start, stop, padding)
        states.append(
            model.encoder(
                random_tokens()[:, start:stop], token_info, CausalVisibility(), memory=cache
            )
        )
    torch.testing.assert_close(torch.cat(states, 1), whole, atol=1e-5, rtol=1e-5)
    for sequence, length in enumerate(padding.flatten().tolist()):
        alone = model.encoder(
            random_tokens()[sequence : sequence + 1, length:], visibility=CausalVisibility()
        )[0]
        torch.testing.assert_close(whole[sequence, length:], alone, atol=1e-5, rtol=1e-5)


REACHING_4 = (
    WindowVisibility(size=4),
    DilatedWindowVisibility(sizes=(2,), dilations=(2,), dilated_heads=1),
)


@pytest.mark.parametrize("window", REACHING_4, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("placement", ["pre", "post"])
@torch.no_grad()
def test_tokens_beyond_the_window_can_be_dropped(placement: str, window: Visibility) -> None:
    model = build_model("transformer-xl", f"encoder.norm.placement={placement}")
    rule, no_padding = CausalVisibility() & window, torch.zeros(3, 1, dtype=torch.int64)
    whole = model.encoder(random_tokens(), token_info_of(0, LENGTH, no_padding), rule)
    cache = KeyValueCache(4)
    for start, stop in [(0, 6), *((position, position + 1) for position in range(6, LENGTH))]:
        token_info = token_info_of(start, stop, no_padding)
        states = model.encoder(random_tokens()[:, start:stop], token_info, rule, memory=cache)
        torch.testing.assert_close(states, whole[:, start:stop], atol=1e-5, rtol=1e-5)
    assert cache.extend_token_info(token_info_of(LENGTH, LENGTH + 1, no_padding)).index.shape == (
        1,
        5,
    )


@torch.no_grad()
def test_selected_sequences_continue() -> None:
    model = build_model("learned")
    padding = torch.tensor([[0], [3], [5]])
    whole = model.encoder(random_tokens(), token_info_of(0, LENGTH, padding), CausalVisibility())
    cache, selected = KeyValueCache(), torch.tensor([2, 0])
    model.encoder(
        random_tokens()[:, :8], token_info_of(0, 8, padding), CausalVisibility(), memory=cache
    )
    cache.select(selected)
    rest = token_info_of(8, LENGTH, padding[selected])
    states = model.encoder(random_tokens()[selected, 8:], rest, CausalVisibility(), memory=cache)
    torch.testing.assert_close(states, whole[selected, 8:], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_query_tokens_are_not_cached() -> None:
    model = build_model("{kind: transformer-xl, untied: true, segments: true}", system="xlnet")
    tokens = random_tokens(2)
    queries = torch.zeros(2, 1, dtype=torch.int64)

    def token_info(start: int, stop: int) -> TokenInfo:
        positions = torch.tensor([[*range(start, stop), stop]]).expand(2, -1)
        is_query = torch.arange(stop - start + 1)[None].expand(2, -1) == stop - start
        return TokenInfo(
            positions[:1], positions, factorisation_order=positions, is_query_stream=is_query
        )

    cache = KeyValueCache()
    for start, stop in [(0, 5), *((position, position + 1) for position in range(5, LENGTH))]:
        part = torch.cat((tokens[:, start:stop], queries), 1)
        state = model.encoder(part, token_info(start, stop), PermutationVisibility(), memory=cache)[
            :, -1
        ]
        whole = torch.cat((tokens[:, :stop], queries), 1)
        expected = model.encoder(whole, token_info(0, stop), PermutationVisibility())[:, -1]
        torch.testing.assert_close(state, expected, atol=1e-5, rtol=1e-5)
