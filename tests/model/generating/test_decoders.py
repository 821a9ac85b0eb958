"""A decoder says beside a prompt what it says in one pass, alone or in company."""

import pytest
import torch

from bertwright.encoder.stream import Coordinates, Source
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.objectives import Denoising
from bertwright.text.tokenizers import ByteBpeChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import SYSTEMS, published, shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat <mask> sea", "", "a dog sees the cat and the", "dogs"]
DECODING = [system for system in SYSTEMS if published(system).decoder is not None]
every_decoder = pytest.mark.parametrize("system", DECODING)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT], ByteBpeChoice(size=300, sentinels=10))


def made(tokenizer, system: str, *changes: str) -> TextModel:
    recipe = toy(system, f"text.tokenizer.size={tokenizer.size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.size), 0.1)
    return TextModel(model, tokenizer, "float32")


@every_decoder
def test_log_probabilities_step_by_step_are_those_of_one_pass(tokenizer, system) -> None:
    text_model = made(tokenizer, system)
    model, specials = text_model.model, tokenizer.specials
    (objective,) = (o for o in model.recipe.objectives.values() if isinstance(o, Denoising))
    begin = getattr(specials, objective.noising.begins)
    for found in text_model.generate(PROMPTS, max_new_tokens=8, seed=1):
        prompt = [specials.start, *tokenizer.encode(found.prompt), specials.end]
        read = torch.tensor([prompt])
        given = torch.tensor([[begin, *found.pieces[:-1]]])
        first = objective.noising.first(prompt, specials)
        position = first + torch.arange(given.shape[1])[None]
        with torch.no_grad():
            source = Source(model(read), Coordinates.plain(read))
            states = model.decoder.states(given, source, position)[0]
            logs = model.logits(states).double().log_softmax(-1)
        expected = [float(row[piece]) for row, piece in zip(logs, found.pieces, strict=True)]
        assert found.log_probabilities == pytest.approx(expected, abs=1e-5)
        assert found.whole == found.text


@every_decoder
def test_a_text_is_the_same_alone_and_in_company(tokenizer, system) -> None:
    model = made(tokenizer, system)
    together = model.generate(PROMPTS, max_new_tokens=6, num_samples=2, seed=3)
    for number, prompt in enumerate(PROMPTS):
        alone = model.generate(prompt, max_new_tokens=6, num_samples=2, seed=3)
        for one, other in zip(alone, together[2 * number :], strict=False):
            assert (one.pieces, one.text) == (other.pieces, other.text)


def test_a_decoder_says_it_in_another_language(tokenizer) -> None:
    model = made(tokenizer, "mass", "encoder.embeddings.languages=[en, de]")
    specials = tokenizer.specials
    (found,) = model.generate("the cat", max_new_tokens=6, seed=1, language="de", into="en")
    prompt = [specials.start, *tokenizer.encode("the cat"), specials.end]
    read, given = torch.tensor([prompt]), torch.tensor([[specials.mask, *found.pieces[:-1]]])
    with torch.no_grad():
        german = Coordinates.plain(read).spoken(read, 1)
        source = Source(model.model(read, german), german)
        english = torch.zeros_like(given)
        states = model.model.decoder.states(given, source, None, english)[0]
        logs = model.model.logits(states).double().log_softmax(-1)
    expected = [float(row[piece]) for row, piece in zip(logs, found.pieces, strict=True)]
    assert found.log_probabilities == pytest.approx(expected, abs=1e-5)
    (other,) = model.generate("the cat", max_new_tokens=6, seed=1, language="de", into="de")
    assert other.log_probabilities != found.log_probabilities


def test_a_fragment_is_said_from_the_first_hidden_place_on(tokenizer) -> None:
    (objective,) = (o for o in published("mass").objectives.values() if isinstance(o, Denoising))
    mask = tokenizer.specials.mask
    assert objective.noising.first([7, 8, mask, mask, 9], tokenizer.specials) == 2
    assert objective.noising.first([7, 8, 9], tokenizer.specials) == 0


def test_sentinels_are_read_in_a_prompt_and_written_in_an_answer(tokenizer) -> None:
    last = tokenizer.size - 1
    pieces = tokenizer.encode("the <extra_id_0> sees <extra_id_1>")
    assert [p for p in pieces if p >= tokenizer.size - 10] == [last, last - 1]
    assert "<extra_id_1>" in tokenizer.decode([last - 1, *tokenizer.encode(" sea")])


def test_a_prompt_that_is_too_long_says_so(tokenizer) -> None:
    model = made(tokenizer, "bart", "encoder.positions.size=24")
    with pytest.raises(UserError, match="longer than the 24"):
        model.generate("the cat sees " * 20)
    assert model.generate("", max_new_tokens=100, temperature=0)[0].stopped in ("full", "end")


@every_decoder
def test_what_an_encoder_does_not_name_is_not_asked_of_it(tokenizer, system) -> None:
    with pytest.raises(UserError, match="fill-mask needs an encoder that names pieces"):
        made(tokenizer, system).fill_mask("the [MASK] sees the sea")
