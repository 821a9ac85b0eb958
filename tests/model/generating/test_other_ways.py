"""Generation in another order, and by filling hidden places."""

import pytest
import torch

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import InOrder
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.generating.generate import slowness
from bertwright.model.text_model import TextModel
from bertwright.objectives import Causal, Masked, Permutation
from bertwright.text.tokenizers import ByteBpeChoice, Tokenizer
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import SYSTEMS, published, shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat", "", "a dog sees the cat and the", "dogs"]


def systems(kind: type) -> list[str]:
    """Those whose last phase asks such a question."""
    found = [(s, published(s)) for s in SYSTEMS]
    last = [(s, r.objectives_of(len(r.phases) - 1).values()) for s, r in found]
    return [s for s, asked in last if any(isinstance(o, kind) for o in asked)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT], ByteBpeChoice(size=290))


def made(tokenizer: Tokenizer, system: str, *changes: str) -> TextModel:
    recipe = toy(system, f"text.tokenizer.size={tokenizer.size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.size), 0.1)
    return TextModel(model, tokenizer, "float32")


@pytest.mark.parametrize("system", systems(Permutation))
@torch.no_grad()
def test_asking_step_by_step_is_one_pass_with_all_the_places_that_ask(
    tokenizer: Tokenizer, system: str
) -> None:
    model = made(tokenizer, system)
    for found in model.generate(PROMPTS, max_new_tokens=7, seed=1):
        opened = [tokenizer.specials.start, *tokenizer.encode(found.prompt)]
        first, number = len(opened), len(found.pieces)
        turns = torch.tensor([0] * first + list(range(1, number + 1)))
        where = torch.arange(first, first + number)
        length = first + number
        coordinates = Coordinates(
            torch.arange(length + number)[None],
            torch.cat((torch.arange(length), where))[None],
            order=torch.cat((turns, turns[where]))[None],
            asking=(torch.arange(length + number) >= length)[None],
        )
        row = torch.tensor([[*opened, *found.pieces, *[0] * number]])
        states = model.model(row, coordinates, InOrder())[0, length:]
        logs = model.model.logits(states).log_softmax(-1)
        expected = [float(log[piece]) for log, piece in zip(logs, found.pieces, strict=True)]
        assert found.log_probabilities == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("system", [*systems(Permutation), *systems(Masked)])
def test_a_text_is_the_same_alone_and_in_company(tokenizer: Tokenizer, system: str) -> None:
    model = made(tokenizer, system)
    by, sweeps = ("masked", 2) if system in systems(Masked) else (None, 1)
    settings = {"max_new_tokens": 4, "seed": 3, "sweeps": sweeps, "by": by}
    together = model.generate(PROMPTS, **settings)
    assert [c.prompt for c in together] == PROMPTS
    for prompt, other in zip(PROMPTS, together, strict=True):
        (alone,) = model.generate(prompt, **settings)
        assert (alone.pieces, alone.text) == (other.pieces, other.text)
        assert alone.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-5)


@pytest.mark.parametrize("shift", [0, 1], ids=["at", "before"])
@torch.no_grad()
def test_a_masked_model_fills_from_left_to_right_what_it_does_not_see(
    tokenizer: Tokenizer, shift: int
) -> None:
    model = made(tokenizer, "bert", f"objectives.masked.shift={shift}")
    (found,) = model.generate("the cat", max_new_tokens=3, temperature=0)
    specials = tokenizer.specials
    opened = [specials.start, *tokenizer.encode("the cat")]
    row = [*opened, *[specials.mask] * 3, specials.end]
    for number, piece in enumerate(found.pieces):
        states = model.model(torch.tensor([row]))[0]
        logits = model.model.logits(states[len(opened) + number - shift])
        logits[sorted(specials.all)] = -torch.inf
        assert piece == int(logits.argmax())
        row[len(opened) + number] = piece
    assert not set(found.pieces) & specials.all


def test_another_sweep_changes_what_was_added_and_is_of_masked_models_alone(
    tokenizer: Tokenizer,
) -> None:
    model = made(tokenizer, "bert")
    once, twice = (model.generate("the", max_new_tokens=8, sweeps=n)[0] for n in (1, 2))
    assert once.pieces != twice.pieces
    assert len(once.pieces) == len(twice.pieces) == 8
    with pytest.raises(UserError, match="sweeps are of masked models"):
        made(tokenizer, "gpt").generate("the", sweeps=2)


def test_a_masked_model_adds_no_more_than_it_reads(tokenizer: Tokenizer) -> None:
    model = made(tokenizer, "bert", "encoder.positions.size=24")
    prompt = "the cat sees a dog"
    (found,) = model.generate(prompt)
    assert found.stopped == "full"
    assert 2 + len(tokenizer.encode(prompt)) + len(found.pieces) == 24
    with pytest.raises(UserError, match=r"shorten it"):
        model.generate("the cat " * 12)


def test_what_is_slow_says_so(tokenizer: Tokenizer) -> None:
    assert "reads the whole text again" in str(slowness(toy("bert")))
    fixed = toy("gpt", "encoder.mixer={kind: fixed-patterns, head_width: 16}")
    assert "the mixer fixed-patterns keeps nothing" in str(slowness(fixed))
    for system in systems(Causal):
        recipe = toy(system)
        assert (slowness(recipe) is None) == recipe.encoder.caches
    halting = "encoder.depth={kind: halting, layers: 2}"
    with pytest.raises(UserError, match="kept, and the depth halting keeps nothing"):
        made(tokenizer, "xlnet", halting).generate("the")
