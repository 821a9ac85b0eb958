"""A model with its tokenizer: the same answers however texts are batched."""

import numpy as np
import pytest
import torch

from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import InOrder
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.folder import load_model, save_model
from bertwright.model.hidden import states_asked
from bertwright.model.reading import read_batches
from bertwright.model.scoring import _word_ends
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import SYSTEMS, toy

TEXTS = ["a dog sees the cat", "", "the cat", "dogs, cats and the sea " * 3]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 5, WordPieceChoice(size=60, lowercase=True))


def made(system, tokenizer, precision="float32"):
    by_distance = not toy(system).encoder.mixer.recurrent
    recipe = toy(
        system,
        *(["encoder.positions={kind: rotary}"] if by_distance else []),
        f"text.tokenizer.size={tokenizer.size}",
    )
    return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, precision)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_text_has_the_same_vectors_alone_and_in_company(system, tokenizer):
    model = made(system, tokenizer)
    together = model.embed(TEXTS)
    for number, text in enumerate(TEXTS):
        np.testing.assert_allclose(together[number], model.embed([text])[0], atol=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_saving_and_loading_changes_nothing(system, tokenizer, tmp_path):
    model = made(system, tokenizer)
    save_model(tmp_path / "m", model.model, tokenizer)
    again = TextModel(*load_model(tmp_path / "m"), "float32")
    np.testing.assert_array_equal(model.embed(TEXTS), again.embed(TEXTS))
    assert again.model.recipe == model.model.recipe


def test_a_text_is_read_in_the_language_that_is_said(tokenizer):
    model = made("xlm", tokenizer)
    known = model.model.recipe.encoder.embeddings.languages
    plain, first, second = (model.embed(TEXTS, language=name) for name in (None, *known[:2]))
    np.testing.assert_array_equal(plain, first)
    assert np.abs(plain - second).max() > 1e-3
    assert model.score(TEXTS, language=known[0]) != model.score(TEXTS, language=known[1])
    with torch.no_grad():
        rows = model.model.encoder.embeddings.languages.weight
        rows[1] = rows[0]
    for one, other in zip(model.encode(TEXTS, language=known[1]), model.encode(TEXTS), strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.fill_mask("the [MASK]", language=known[1]) == model.fill_mask("the [MASK]")
    assert model.score(TEXTS, language=known[0]) == model.score(TEXTS, language=known[1])
    with pytest.raises(UserError, match="no vector for the language 'xx'"):
        model.embed(TEXTS, language="xx")


def test_states_are_those_of_the_pieces_and_their_mean_is_the_embedding(tokenizer):
    model = made("modern", tokenizer)
    states = model.encode(TEXTS)
    assert [len(s) for s in states] == [len(tokenizer.encode(t)) + 2 for t in TEXTS]
    np.testing.assert_allclose(states[3].mean(0), model.embed([TEXTS[3]])[0], atol=1e-5)
    np.testing.assert_allclose(states[2][0], model.embed([TEXTS[2]], "cls")[0], atol=1e-5)


@pytest.mark.parametrize("system", ["gpt-2", "transformer-xl", "awd-lstm", "elmo"])
def test_what_names_the_next_piece_fills_no_place(tokenizer, system):
    with pytest.raises(UserError, match="names what comes next: use generate or score"):
        made(system, tokenizer).fill_mask("the [MASK] sees")


def test_a_language_is_not_said_to_an_encoder_without_any(tokenizer):
    with pytest.raises(UserError, match="leave --language out"):
        made("bert", tokenizer).embed(TEXTS, language="en")


def test_the_last_four_blocks_stand_side_by_side(tokenizer):
    assert made("modern", tokenizer).embed(TEXTS, layers="last-4").shape == (4, 2 * 32)
    assert made("modern", tokenizer).embed([]).shape == (0, 32)


def test_bfloat16_points_the_same_way(tokenizer):
    exact, fast = made("bert", tokenizer), made("bert", tokenizer, "bf16")
    one, other = exact.embed(TEXTS, normalise=True), fast.embed(TEXTS, normalise=True)
    assert (one * other).sum(1).min() > 0.999


@pytest.mark.processor
def test_eight_bits_point_the_same_way_and_are_for_processors_that_multiply_them(
    tokenizer, monkeypatch
):
    monkeypatch.setattr("bertwright.model.text_model.eight_bits_are_fast", lambda: True)
    exact, fast = made("bert", tokenizer), made("bert", tokenizer, "int8")
    one, other = exact.embed(TEXTS, normalise=True), fast.embed(TEXTS, normalise=True)
    assert (one * other).sum(1).min() > 0.99
    alone = np.concatenate([fast.embed(text, normalise=True) for text in TEXTS])
    np.testing.assert_allclose(alone, other, atol=0.01)
    monkeypatch.setattr("bertwright.model.text_model.eight_bits_are_fast", lambda: False)
    with pytest.raises(UserError, match="int8 needs an x86 processor"):
        made("bert", tokenizer, "int8")


def test_a_hidden_place_is_answered_with_probabilities(tokenizer):
    model = made("modern", tokenizer)
    guesses = model.fill_mask("the [MASK] sees a [MASK]", top_k=3)
    assert [len(g) for g in guesses] == [3, 3]
    chances = [g.probability for g in guesses[0]]
    assert chances == sorted(chances, reverse=True)
    with pytest.raises(UserError, match="hides nothing"):
        model.fill_mask("nothing is hidden")
    with pytest.raises(UserError, match="no pooling 'max'"):
        model.embed(TEXTS, "max")


@pytest.mark.processor
def test_a_score_is_the_sum_over_hidden_pieces(tokenizer):
    model = made("modern", tokenizer)
    ids, starts = tokenizer.encode_words("a dog")
    ends = _word_ends(starts, len(ids))
    total = 0.0
    for place, piece in enumerate(ids):
        row = [tokenizer.specials.start, *ids, tokenizer.specials.end]
        for hidden in range(place + 1, ends[place] + 1):
            row[hidden] = tokenizer.specials.mask
        with torch.no_grad():
            states = model.model(torch.tensor([row]))[0, place + 1 : place + 2]
            total += float(torch.log_softmax(model.model.logits(states), -1)[0, piece])
    assert model.score(["a dog"])[0] == pytest.approx(total, abs=1e-4)


@pytest.mark.processor
def test_who_was_asked_in_permuted_orders_is_never_shown_a_mask(tokenizer):
    """What hides a place is the order: no other place sees it, and a place behind the text asks."""
    model = made("xlnet", tokenizer)
    before, after = tokenizer.encode("the"), tokenizer.encode("sees")
    ids = [tokenizer.specials.start, *before, 0, *after, tokenizer.specials.end]
    place, number = 1 + len(before), torch.arange(len(ids) + 1)[None]
    order = ((number == place) | (number == len(ids))).long()
    position = number.where(number < len(ids), place)
    coordinates = Coordinates(number, position=position, order=order, asking=number == len(ids))
    with torch.no_grad():
        states = model.model(
            torch.tensor([[*ids, 0]]), coordinates, InOrder() & model.model.encoder.rule
        )
        expected = torch.softmax(model.model.logits(states[0, -1:]), -1)[0].tolist()
    [guesses] = model.fill_mask("the [MASK] sees", top_k=len(expected))
    for guess in guesses:
        assert guess.probability == pytest.approx(expected[tokenizer.id(guess.piece)], abs=1e-6)


@pytest.mark.parametrize("system", ["bert", "gpt-bert", "xlnet"])
def test_what_is_hidden_is_not_seen(system, tokenizer):
    whole = made(system, tokenizer)
    model, device = whole.model, whole.device
    pieces = torch.tensor([[1, 9, 10, 11, 12, 2]], device=device)
    hidden = torch.tensor([[False, False, True, True, False, False]], device=device)
    other = pieces.masked_fill(hidden, 13)
    where, plain = torch.tensor([[2, 3]], device=device), Coordinates.plain(pieces)
    one, two = (states_asked(model, p, plain, hidden, where, 4) for p in (pieces, other))
    assert one.shape == (1, 2, 32)
    assert torch.equal(one, two)
    assert not torch.equal(one[:, 0], one[:, 1])


def test_later_pieces_of_a_word_are_hidden_with_the_scored_one():
    assert _word_ends([0, 3], 5) == [3, 3, 3, 5, 5]
    assert _word_ends([1], 3) == [1, 3, 3]


def test_batches_hold_every_text_once_within_the_budget():
    rows = [[1] * n for n in (3, 9, 1, 5, 5, 2)]
    batches = list(read_batches(rows, 0, torch.device("cpu"), budget=10))
    assert sorted(n for b in batches for n in b.numbers) == list(range(6))
    assert all(b.pieces.numel() <= 10 for b in batches)


def test_a_damaged_or_missing_folder_is_named(tokenizer, tmp_path):
    with pytest.raises(UserError, match="is not a model folder"):
        load_model(tmp_path)
    model = made("bert", tokenizer)
    save_model(tmp_path / "m", model.model, tokenizer)
    weights = tmp_path / "m" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(UserError, match=r"model.safetensors is damaged"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_is_put_in_place_of_a_value_counts_while_it_is_there(tokenizer, precision):
    model = TextModel(made("roberta", tokenizer).model, tokenizer, precision)
    before = model.embed(TEXTS)
    with model.replace("blocks.0.residual", torch.zeros_like):
        assert np.abs(model.embed(TEXTS) - before).max() > 1e-3
    with model.record("blocks.*.attention.weights") as values:
        model.encode(TEXTS[:1])
    assert values
    np.testing.assert_array_equal(model.embed(TEXTS), before)


def test_recordings_of_the_same_values_end_apart(tokenizer):
    model = made("roberta", tokenizer)
    with model.record("output") as outer:
        with model.record("output") as inner:
            model.embed(TEXTS[:1])
        assert inner
        model.embed(TEXTS[1:])
        assert not torch.equal(inner["output"], outer["output"])
    assert model.model.encoder.taps.idle


@pytest.mark.processor
def test_a_value_that_is_not_there_is_refused_by_its_name(tokenizer):
    model = made("roberta", tokenizer)
    near = "no value is named blocks.0.residaul: did you mean 'blocks.0.residual'"
    with pytest.raises(UserError, match=near), model.model.record("blocks.0.residaul"):
        model.embed(TEXTS)
    with pytest.raises(UserError, match="no value"), model.model.replace("blocks.9.*", torch.abs):
        model.embed(TEXTS)
    with pytest.raises(UserError, match="there is no block 99: the last is 1"):
        model.model(torch.zeros(1, 8, dtype=torch.int64), stop_after=99)
    with model.model.record("nothing.of.this"):
        pass


def test_what_is_no_text_is_named(tokenizer):
    with pytest.raises(UserError, match="texts are strings, and 1 is none"):
        made("bert", tokenizer).embed([1, 2])


def test_one_text_is_one_text(tokenizer):
    model = made("roberta", tokenizer)
    np.testing.assert_array_equal(model.embed(TEXTS[0]), model.embed(TEXTS[:1]))
    np.testing.assert_array_equal(model.encode(TEXTS[0])[0], model.encode(TEXTS[:1])[0])
    assert model.score(TEXTS[0]) == model.score(TEXTS[:1])


def test_a_precision_that_is_not_there_is_refused(tokenizer):
    with pytest.raises(UserError, match="no precision 'fp16': choose one of float32, bf16, int8"):
        TextModel(made("roberta", tokenizer).model, tokenizer, "fp16")
