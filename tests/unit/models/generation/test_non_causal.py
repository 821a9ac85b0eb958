"""Generation by permutation models, and by filling masks."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import ByteBpeConfig, Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.generation.generate import slow_generation_reason
from bertwright.models.text_model import TextModel
from bertwright.modules.attention.mask import PermutationVisibility
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.causal import CausalLM
from bertwright.objectives.masked import MaskedLM
from bertwright.objectives.permutation import PermutationLM
from toy_recipes import SYSTEMS, published, shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat", "", "a dog sees the cat and the", "dogs"]


def systems(kind: type) -> list[str]:
    """Systems whose last phase has such an objective."""
    recipes = [(s, published(s)) for s in SYSTEMS]
    last = [(s, r.objectives_of(len(r.phases) - 1).values()) for s, r in recipes]
    return [s for s, objectives in last if any(isinstance(o, kind) for o in objectives)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT], ByteBpeConfig(vocab_size=290))


def build_model(tokenizer: Tokenizer, system: str, *changes: str) -> TextModel:
    recipe = toy(system, f"text.tokenizer.vocab_size={tokenizer.vocab_size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.vocab_size), 0.1)
    return TextModel(model, tokenizer, "float32")


@pytest.mark.parametrize("system", systems(PermutationLM))
@torch.no_grad()
def test_stepwise_queries_equal_one_pass_with_all_queries(
    tokenizer: Tokenizer, system: str
) -> None:
    model = build_model(tokenizer, system)
    start = model.model.recipe.assembly.start_token(tokenizer.special_tokens)
    for text in model.generate(PROMPTS, max_new_tokens=7, seed=1):
        prompt_ids = [start, *tokenizer.encode(text.prompt)]
        first, num_new = len(prompt_ids), len(text.token_ids)
        order = torch.tensor([0] * first + list(range(1, num_new + 1)))
        positions = torch.arange(first, first + num_new)
        length = first + num_new
        token_info = TokenInfo(
            torch.arange(length + num_new)[None],
            torch.cat((torch.arange(length), positions))[None],
            factorisation_order=torch.cat((order, order[positions]))[None],
            is_query_stream=(torch.arange(length + num_new) >= length)[None],
        )
        token_ids = torch.tensor([[*prompt_ids, *text.token_ids, *[0] * num_new]])
        hidden_states = model.model(token_ids, token_info, PermutationVisibility())[0, length:]
        logs = model.model.logits(hidden_states).log_softmax(-1)
        expected = [
            float(log[token_id]) for log, token_id in zip(logs, text.token_ids, strict=True)
        ]
        assert text.log_probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("system", [*systems(PermutationLM), *systems(MaskedLM)])
def test_batching_changes_nothing(tokenizer: Tokenizer, system: str) -> None:
    model = build_model(tokenizer, system)
    objective, sweeps = ("masked", 2) if system in systems(MaskedLM) else (None, 1)
    settings = {"max_new_tokens": 4, "seed": 3, "sweeps": sweeps, "objective": objective}
    batched = model.generate(PROMPTS, **settings)
    assert [c.prompt for c in batched] == PROMPTS
    for prompt, expected in zip(PROMPTS, batched, strict=True):
        (alone,) = model.generate(prompt, **settings)
        assert (alone.token_ids, alone.text) == (expected.token_ids, expected.text)
        assert alone.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-5)


@pytest.mark.parametrize("shift", [0, 1], ids=["at", "before"])
@torch.no_grad()
def test_a_masked_model_fills_from_left_to_right(tokenizer: Tokenizer, shift: int) -> None:
    model = build_model(tokenizer, "bert", f"objectives.masked.shift={shift}")
    (text,) = model.generate("the cat", max_new_tokens=3, temperature=0)
    specials = tokenizer.special_tokens
    prompt_ids = [specials.start, *tokenizer.encode("the cat")]
    token_ids = [*prompt_ids, *[specials.mask] * 3, specials.end]
    for index, token_id in enumerate(text.token_ids):
        states = model.model(torch.tensor([token_ids]))[0]
        logits = model.model.logits(states[len(prompt_ids) + index - shift])
        logits[sorted(specials.all)] = -torch.inf
        assert token_id == int(logits.argmax())
        token_ids[len(prompt_ids) + index] = token_id
    assert not set(text.token_ids) & specials.all


def test_sweeps_change_masked_models_only(
    tokenizer: Tokenizer,
) -> None:
    model = build_model(tokenizer, "bert")
    once, twice = (model.generate("the", max_new_tokens=8, sweeps=n)[0] for n in (1, 2))
    assert once.token_ids != twice.token_ids
    assert len(once.token_ids) == len(twice.token_ids) == 8
    with pytest.raises(UserError, match="sweeps resample masked tokens"):
        build_model(tokenizer, "gpt").generate("the", sweeps=2)


def test_a_masked_model_ends_at_its_maximum_length(tokenizer: Tokenizer) -> None:
    model = build_model(tokenizer, "bert", "encoder.positions.size=24")
    prompt = "the cat sees a dog"
    (text,) = model.generate(prompt)
    assert text.finish_reason == "full"
    assert 2 + len(tokenizer.encode(prompt)) + len(text.token_ids) == 24
    with pytest.raises(UserError, match=r"shorten it"):
        model.generate("the cat " * 12)


def test_slow_generation_has_a_reason(tokenizer: Tokenizer) -> None:
    assert "encodes the whole text again" in str(slow_generation_reason(toy("bert")))
    fixed = toy("gpt", "encoder.mixer={kind: fixed-patterns, head_width: 16}")
    assert "the mixer fixed-patterns has no cache" in str(slow_generation_reason(fixed))
    for system in systems(CausalLM):
        recipe = toy(system)
        assert (slow_generation_reason(recipe) is None) == recipe.encoder.supports_cache
    halting = "encoder.depth={kind: halting, layers: 2}"
    with pytest.raises(UserError, match="need a cache, and the depth halting has no cache"):
        plain = ("encoder.memory_length=0", "assembly=segment-pair")
        build_model(tokenizer, "xlnet", halting, *plain).generate("the")
