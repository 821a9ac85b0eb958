"""Beams: what they find is the best there is where they can hold all of it; nothing is drawn."""

import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.generating.continuing import Continuation
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import ByteBpeChoice, Tokenizer
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat", "", "a dog sees the cat and the"]
SYSTEMS = ["gpt", "universal-transformer", "xlnet", "bart", "t5"]
CAUSAL = {
    "universal-transformer": (
        "encoder.visibility.kind=causal",
        "assembly={kind: packed, length: 24}",
        "objectives={masked: null, causal: {}}",
    )
}
every_way = pytest.mark.parametrize("system", SYSTEMS)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT], ByteBpeChoice(size=300, sentinels=10))


def made(tokenizer: Tokenizer, system: str) -> TextModel:
    changes = (f"text.tokenizer.size={tokenizer.size}", *CAUSAL.get(system, ()))
    model = shaken(Model.build(toy(system, *changes), tokenizer.size), 0.1)
    return TextModel(model, tokenizer, "float32")


def score(found: Continuation, length_power: float = 1.0) -> float:
    return sum(found.log_probabilities) / len(found.pieces) ** length_power


@every_way
def test_with_a_beam_for_every_piece_no_text_is_better(tokenizer: Tokenizer, system: str) -> None:
    """Two pieces behind a prompt: all first ones are followed, so that none is lost."""
    model = made(tokenizer, system)
    (best, *_) = model.generate(PROMPTS[0], beams=tokenizer.size, max_new_tokens=2, length_power=0)
    logs = dict[tuple[int, ...], float]()
    drawn = model.generate(PROMPTS[0], max_new_tokens=2, num_samples=400, temperature=1.5)
    for found in drawn:
        logs[found.pieces] = sum(found.log_probabilities)
    assert len(logs) > 200
    assert sum(best.log_probabilities) >= max(logs.values()) - 1e-5
    if best.pieces in logs:
        assert sum(best.log_probabilities) == pytest.approx(logs[best.pieces], abs=1e-5)


@every_way
def test_more_beams_end_in_texts_no_worse_in_order_and_all_different(
    tokenizer: Tokenizer, system: str
) -> None:
    model = made(tokenizer, system)
    for prompt in PROMPTS:
        (greedy,) = model.generate(prompt, temperature=0, max_new_tokens=6)
        found = model.generate(prompt, beams=4, num_samples=4, max_new_tokens=6)
        scores = [score(one) for one in found]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] >= score(greedy) - 1e-5
        assert len({one.pieces for one in found}) == len(found) == 4
        assert [one.sample for one in found] == [0, 1, 2, 3]


@every_way
def test_a_text_is_the_same_alone_and_in_company(tokenizer: Tokenizer, system: str) -> None:
    model = made(tokenizer, system)
    settings = {"beams": 3, "max_new_tokens": 5, "repetition_penalty": 1.2}
    together = model.generate(PROMPTS, **settings)
    assert [one.prompt for one in together] == PROMPTS
    for prompt, other in zip(PROMPTS, together, strict=True):
        (alone,) = model.generate(prompt, seed=5, **settings)
        assert (alone.pieces, alone.text) == (other.pieces, other.text)
        assert alone.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-5)


def test_length_counts_as_much_as_is_asked(tokenizer: Tokenizer) -> None:
    """Where a text may end at any piece, long ones are worse unless their length is allowed for."""
    model = made(tokenizer, "gpt")
    output = model.model.output
    assert output is not None
    with torch.no_grad():
        output.bias = torch.nn.Parameter(torch.zeros(tokenizer.size, device=model.device))
        output.bias[tokenizer.specials.end] = 4.0
    lengths: dict[float, int] = {}
    for power in (0.0, 3.0):
        settings = {"beams": 4, "max_new_tokens": 12, "length_power": power}
        found = model.generate(PROMPTS, num_samples=4, **settings)
        lengths[power] = sum(len(one.pieces) for one in found)
        scores = [score(one, power) for one in found if one.prompt == PROMPTS[0]]
        assert scores == sorted(scores, reverse=True)
    assert lengths[0.0] < lengths[3.0]


def test_beams_end_before_a_stop_text(tokenizer: Tokenizer) -> None:
    model = made(tokenizer, "gpt")
    (free,) = model.generate("the cat", beams=3, max_new_tokens=6)
    stop = next(character for character in free.text if character.strip())
    found = model.generate("the cat", beams=3, num_samples=3, max_new_tokens=6, stop=stop)
    assert all(stop not in one.text for one in found)


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("gpt", {"beams": 2, "top_k": 3}, "beams draw nothing: leave out temperature"),
        ("gpt", {"beams": 2, "temperature": 0.7}, "beams draw nothing"),
        ("gpt", {"length_power": 0.5}, "set beams to 2 or more"),
        ("gpt", {"beams": 2, "num_samples": 3}, "2 beams end in as many texts"),
        ("bert", {"beams": 2}, "beams are of models that go on at the end of a text"),
    ],
)
def test_a_mistake_is_one_sentence(
    tokenizer: Tokenizer, system: str, settings: dict[str, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        made(tokenizer, system).generate("the", **settings)
