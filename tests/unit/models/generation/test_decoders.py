"""Decoders generate the same text step by step or in one pass, batched or not."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import ByteBpeConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.objectives.denoising import Denoising
from toy_recipes import SYSTEMS, published, shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat <mask> sea", "", "a dog sees the cat and the", "dogs"]
DECODING = [system for system in SYSTEMS if published(system).decoder is not None]
every_decoder = pytest.mark.parametrize("system", DECODING)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT], ByteBpeConfig(vocab_size=300, sentinels=10))


def build_model(tokenizer, system: str, *changes: str) -> TextModel:
    recipe = toy(system, f"text.tokenizer.vocab_size={tokenizer.vocab_size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.vocab_size), 0.1)
    return TextModel(model, tokenizer, "float32")


@every_decoder
def test_stepwise_log_probabilities_equal_one_pass(tokenizer, system) -> None:
    text_model = build_model(tokenizer, system)
    model, specials = text_model.model, tokenizer.special_tokens
    (objective,) = (o for o in model.recipe.objectives.values() if isinstance(o, Denoising))
    start_id = getattr(specials, objective.noising.begins)
    for text in text_model.generate(PROMPTS, max_new_tokens=8, seed=1):
        prompt = [specials.start, *tokenizer.encode(text.prompt), specials.end]
        source_ids = torch.tensor([prompt])
        decoder_input_ids = torch.tensor([[start_id, *text.token_ids[:-1]]])
        first = objective.noising.first_position(prompt, specials)
        position_ids = first + torch.arange(decoder_input_ids.shape[1])[None]
        with torch.no_grad():
            source = CrossAttentionSource(model(source_ids), TokenInfo.from_token_ids(source_ids))
            hidden_states = model.decoder.decode(decoder_input_ids, source, position_ids)[0]
            logs = model.logits(hidden_states).double().log_softmax(-1)
        expected = [
            float(row[token_id]) for row, token_id in zip(logs, text.token_ids, strict=True)
        ]
        assert text.log_probabilities == pytest.approx(expected, abs=1e-5)
        assert text.full_text == text.text


@every_decoder
def test_batching_changes_nothing(tokenizer, system) -> None:
    model = build_model(tokenizer, system)
    batched = model.generate(PROMPTS, max_new_tokens=6, num_samples=2, seed=3)
    for index, prompt in enumerate(PROMPTS):
        single = model.generate(prompt, max_new_tokens=6, num_samples=2, seed=3)
        for actual, expected in zip(single, batched[2 * index :], strict=False):
            assert (actual.token_ids, actual.text) == (expected.token_ids, expected.text)


def test_a_decoder_generates_in_the_target_language(tokenizer) -> None:
    model = build_model(tokenizer, "mass", "encoder.embeddings.languages=[en, de]")
    specials = tokenizer.special_tokens
    (text,) = model.generate(
        "the cat", max_new_tokens=6, seed=1, language="de", target_language="en"
    )
    prompt = [specials.start, *tokenizer.encode("the cat"), specials.end]
    source_ids, decoder_input_ids = (
        torch.tensor([prompt]),
        torch.tensor([[specials.mask, *text.token_ids[:-1]]]),
    )
    with torch.no_grad():
        german = TokenInfo.from_token_ids(source_ids).with_language(source_ids, 1)
        source = CrossAttentionSource(model.model(source_ids, german), german)
        english = torch.zeros_like(decoder_input_ids)
        hidden_states = model.model.decoder.decode(decoder_input_ids, source, None, english)[0]
        logs = model.model.logits(hidden_states).double().log_softmax(-1)
    expected = [float(row[token_id]) for row, token_id in zip(logs, text.token_ids, strict=True)]
    assert text.log_probabilities == pytest.approx(expected, abs=1e-5)
    (other,) = model.generate(
        "the cat", max_new_tokens=6, seed=1, language="de", target_language="de"
    )
    assert other.log_probabilities != text.log_probabilities


def test_sentinels_are_encoded_and_decoded(tokenizer) -> None:
    last = tokenizer.vocab_size - 1
    token_ids = tokenizer.encode("the <extra_id_0> sees <extra_id_1>")
    assert [token_id for token_id in token_ids if token_id >= tokenizer.vocab_size - 10] == [
        last,
        last - 1,
    ]
    assert "<extra_id_1>" in tokenizer.decode([last - 1, *tokenizer.encode(" sea")])


def test_long_prompts_are_refused(tokenizer) -> None:
    model = build_model(tokenizer, "bart", "encoder.positions.size=24")
    with pytest.raises(UserError, match="exceeds the model's maximum of 24"):
        model.generate("the cat sees " * 20)
    assert model.generate("", max_new_tokens=100, temperature=0)[0].finish_reason in ("full", "end")


@every_decoder
def test_fill_mask_is_refused(tokenizer, system) -> None:
    with pytest.raises(UserError, match="fill-mask needs an encoder that predicts tokens"):
        build_model(tokenizer, system).fill_mask("the [MASK] sees the sea")
