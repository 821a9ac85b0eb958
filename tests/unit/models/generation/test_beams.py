"""Beam search finds the best text if no beam is pruned, and samples nothing."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import ByteBpeConfig, Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.generation.sampling import GeneratedText
from bertwright.models.text_model import TextModel
from toy_recipes import shaken, toy

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
every_method = pytest.mark.parametrize("system", SYSTEMS)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT], ByteBpeConfig(vocab_size=300, sentinels=10))


def build_model(tokenizer: Tokenizer, system: str) -> TextModel:
    changes = (f"text.tokenizer.vocab_size={tokenizer.vocab_size}", *CAUSAL.get(system, ()))
    model = shaken(Model.build(toy(system, *changes), tokenizer.vocab_size), 0.1)
    return TextModel(model, tokenizer, "float32")


def score(text: GeneratedText, length_penalty: float = 1.0) -> float:
    return sum(text.log_probabilities) / len(text.token_ids) ** length_penalty


@every_method
def test_with_a_beam_per_token_no_text_is_better(tokenizer: Tokenizer, system: str) -> None:
    """With two new tokens, all first tokens are followed, so no text is pruned."""
    model = build_model(tokenizer, system)
    (best, *_) = model.generate(
        PROMPTS[0], num_beams=tokenizer.vocab_size, max_new_tokens=2, length_penalty=0
    )
    logs = dict[tuple[int, ...], float]()
    samples = model.generate(PROMPTS[0], max_new_tokens=2, num_samples=400, temperature=1.5)
    for sample in samples:
        logs[sample.token_ids] = sum(sample.log_probabilities)
    assert len(logs) > 200
    assert sum(best.log_probabilities) >= max(logs.values()) - 1e-5
    if best.token_ids in logs:
        assert sum(best.log_probabilities) == pytest.approx(logs[best.token_ids], abs=1e-5)


@every_method
def test_beams_are_sorted_distinct_and_no_worse_than_greedy(
    tokenizer: Tokenizer, system: str
) -> None:
    model = build_model(tokenizer, system)
    for prompt in PROMPTS:
        (greedy,) = model.generate(prompt, temperature=0, max_new_tokens=6)
        texts = model.generate(prompt, num_beams=4, num_samples=4, max_new_tokens=6)
        scores = [score(text) for text in texts]
        assert scores == sorted(scores, reverse=True)
        assert scores[0] >= score(greedy) - 1e-5
        assert len({text.token_ids for text in texts}) == len(texts) == 4
        assert [text.sample for text in texts] == [0, 1, 2, 3]


@every_method
def test_batching_changes_nothing(tokenizer: Tokenizer, system: str) -> None:
    model = build_model(tokenizer, system)
    settings = {"num_beams": 3, "max_new_tokens": 5, "repetition_penalty": 1.2}
    batched = model.generate(PROMPTS, **settings)
    assert [text.prompt for text in batched] == PROMPTS
    for prompt, expected in zip(PROMPTS, batched, strict=True):
        (alone,) = model.generate(prompt, seed=5, **settings)
        assert (alone.token_ids, alone.text) == (expected.token_ids, expected.text)
        assert alone.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-5)


def test_the_length_penalty_favours_longer_texts(tokenizer: Tokenizer) -> None:
    """Where a text may end at any token, longer ones score lower without a length penalty."""
    model = build_model(tokenizer, "gpt")
    output = model.model.output
    assert output is not None
    with torch.no_grad():
        output.bias = torch.nn.Parameter(torch.zeros(tokenizer.vocab_size, device=model.device))
        output.bias[tokenizer.special_tokens.end] = 4.0
    lengths: dict[float, int] = {}
    for power in (0.0, 3.0):
        settings = {"num_beams": 4, "max_new_tokens": 12, "length_penalty": power}
        texts = model.generate(PROMPTS, num_samples=4, **settings)
        lengths[power] = sum(len(text.token_ids) for text in texts)
        scores = [score(text, power) for text in texts if text.prompt == PROMPTS[0]]
        assert scores == sorted(scores, reverse=True)
    assert lengths[0.0] < lengths[3.0]


def test_beams_end_before_a_stop_text(tokenizer: Tokenizer) -> None:
    model = build_model(tokenizer, "gpt")
    (free,) = model.generate("the cat", num_beams=3, max_new_tokens=6)
    stop = next(character for character in free.text if character.strip())
    texts = model.generate("the cat", num_beams=3, num_samples=3, max_new_tokens=6, stop=stop)
    assert all(stop not in text.text for text in texts)


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("gpt", {"num_beams": 2, "top_k": 3}, "beam search does not sample: leave out temperature"),
        ("gpt", {"num_beams": 2, "temperature": 0.7}, "beam search does not sample"),
        ("gpt", {"length_penalty": 0.5}, "set num_beams to 2 or more"),
        ("gpt", {"num_beams": 2, "num_samples": 3}, "2 beams give at most 2 samples"),
        ("bert", {"num_beams": 2}, "beam search needs a left-to-right model"),
    ],
)
def test_invalid_settings_are_refused(
    tokenizer: Tokenizer, system: str, settings: dict[str, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        build_model(tokenizer, system).generate("the", **settings)
