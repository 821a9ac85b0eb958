"""Laws of the held-out figures."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from small_recipe import small

from bertwright.encoder.stream import Coordinates
from bertwright.examples.assembly import Contiguous
from bertwright.examples.questions import Question
from bertwright.examples.selection import Chosen, Tokens
from bertwright.examples.vocabulary import Vocabulary
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.causal import Causal
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Asking, Objective
from bertwright.objectives.permutation import Permutation
from bertwright.randomness import Draw
from bertwright.schedules import Constant
from bertwright.text.marks import WORD_START
from bertwright.text.shards import Data
from bertwright.training.bits_per_byte import HiddenWords, hidden_words
from bertwright.training.evaluation import bits_per_byte, evaluate, held_out

CPU = torch.device("cpu")


def knows_nothing(data: Data, *changes: str) -> Model:
    """A model whose every answer is the same for all pieces."""
    model = Model.build(small("modern", *changes), data.tokenizer.size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def test_a_model_that_knows_nothing_pays_the_logarithm_of_the_vocabulary(data: Data) -> None:
    figures = evaluate(knows_nothing(data), data)
    size = data.tokenizer.size
    assert figures["masked_loss"] == pytest.approx(math.log(size), rel=1e-5)
    assert figures["perplexity"] == pytest.approx(size, rel=1e-4)
    assert set(figures) == {
        "masked_loss",
        "perplexity",
        "masked_accuracy",
        "unigram_entropy",
        "most_frequent_accuracy",
        "bits_per_byte",
        "nats_per_hidden_word",
    }


def test_a_model_of_frequencies_pays_the_unigram_entropy(data: Data) -> None:
    model = knows_nothing(data)
    counts = data.piece_counts
    with torch.no_grad():
        share = torch.from_numpy((counts + 1) / (counts.sum() + len(counts)))
        model.output.bias.copy_(share.log())
    figures = evaluate(model, data)
    assert figures["masked_loss"] == pytest.approx(figures["unigram_entropy"], rel=1e-4)
    assert figures["masked_accuracy"] == pytest.approx(figures["most_frequent_accuracy"])
    assert 0 < figures["most_frequent_accuracy"] < 0.5
    assert figures["unigram_entropy"] < math.log(data.tokenizer.size)


def test_no_question_reads_a_text_that_another_has_shuffled(data: Data) -> None:
    changes = ("encoder.positions.size=64", "phases=[{}]")
    both = Model.build(small("structbert", *changes), data.tokenizer.size)
    undisturbed = {n: o for n, o in both.recipe.objectives.items() if n != "word-order"}
    alone = both.recipe.model_copy(update={"objectives": undisturbed})
    found, expected = evaluate(both, data), evaluate(both, data, recipe=alone)
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) == {"word_order_loss", "word_order_accuracy"}


@pytest.mark.parametrize("lean", [0.0, 1.0])
def test_a_model_that_finds_no_replaced_piece_is_right_mostly_and_ranks_at_random(
    data: Data, lean: float
) -> None:
    recipe = small("electra", "phases=[{}]", "encoder.positions.size=64")
    model = Model.build(recipe, data.tokenizer.size)
    head = model.heads["replaced-token"]
    with torch.no_grad():
        head.out.weight.mul_(lean)
        head.out.bias.fill_(-100.0)
    found = held_out(recipe, 0, data, 1000)
    figures = found.figures(model, CPU)
    assert figures["replaced_token_accuracy"] > 0.8
    if lean == 0.0:
        assert figures["replaced_token_auc"] == 0.5
        return
    seen, asked = [], []
    for batch in found.batches:
        with torch.no_grad():
            loss = model.losses(TensorBatch(batch), found.objectives)["replaced-token"]
        counts = batch.questions["replaced-token"].weight > 0
        seen += loss.leaning[0].numpy()[counts].tolist()
        asked += loss.leaning[1].numpy()[counts].tolist()
    assert figures["replaced_token_auc"] == pytest.approx(roc_auc_score(asked, seen), abs=1e-12)


def test_questions_do_not_depend_on_the_seed_nor_on_what_is_trained_with(data: Data) -> None:
    plain = held_out(small(), 2, data, 1000)
    other = held_out(
        small("modern", "seed=7", "objectives.masked.selection.rate=0.5"), 2, data, 1000
    )
    for a, b in zip(plain.batches, other.batches, strict=True):
        np.testing.assert_array_equal(a.pieces, b.pieces)
        np.testing.assert_array_equal(a.questions["masked"].where, b.questions["masked"].where)
    asked = sum(float(b.questions["masked"].weight.sum()) for b in plain.batches)
    assert asked / sum(b.num_tokens for b in plain.batches) == pytest.approx(0.15, abs=0.02)


def test_a_causal_phase_is_asked_what_it_trains(data: Data) -> None:
    figures = held_out(small(), 0, data, 500).figures(knows_nothing(data), CPU)
    assert set(figures) == {"causal_loss", "causal_accuracy"}


def test_the_number_of_tokens_bounds_the_rows(data: Data) -> None:
    questions = held_out(small(), 2, data, 320)
    assert sum(b.pieces.size for b in questions.batches) == 320


def hidden_in(data: Data, most_bytes: int = 10**6, length: int = 32) -> list[HiddenWords]:
    specials = data.tokenizer.specials
    return list(hidden_words(data.split("heldout"), specials, specials.start, length, most_bytes))


def vocabulary_of(data: Data) -> Vocabulary:
    return Vocabulary(data.tokenizer.size, data.tokenizer.specials)


def masks(hidden: HiddenWords, data: Data) -> Question:
    """The question that a masked model is asked."""
    batch = hidden.asked({"masked": Masked()}, vocabulary_of(data))
    assert batch is not None
    question = batch.questions["masked"]
    asked = question.where[question.weight > 0]
    shown = batch.pieces == data.tokenizer.specials.mask
    np.testing.assert_array_equal(shown, hidden.hidden)
    assert shown.ravel()[asked].all()
    return question


def first_rounds(data: Data) -> list[HiddenWords]:
    """Those in which words begin, and in which all their pieces are hidden."""
    return [hidden for hidden in hidden_in(data) if hidden.num_words > 0]


def hidden_texts(data: Data) -> list[str]:
    """What the hidden pieces spell, row after row."""
    return [
        data.tokenizer.decode(hidden.rows.pieces[hidden.hidden].tolist())
        for hidden in first_rounds(data)
    ]


def test_every_hidden_piece_is_asked_once_and_when_those_before_it_are_known(data: Data) -> None:
    num_hidden = sum(int(hidden.hidden.sum()) for hidden in first_rounds(data))
    assert sum(float(hidden.chosen.weight.sum()) for hidden in hidden_in(data)) == num_hidden
    for hidden in hidden_in(data):
        asked = np.zeros_like(hidden.hidden)
        row, slot = np.nonzero(hidden.chosen.weight)
        asked[row, hidden.chosen.where[row, slot]] = True
        assert hidden.hidden[asked].all()
        if hidden.num_words == 0:
            # It goes on with a word whose pieces before it are shown.
            assert not np.roll(hidden.hidden, 1, axis=1)[asked].any()
        else:
            assert asked.sum() == hidden.num_words


def test_a_word_costs_what_its_pieces_cost_one_after_the_other(byte_data: Data) -> None:
    """By hand, for a model of both sides: every piece given all that is not hidden in its round."""
    model = Model.build(small(), byte_data.tokenizer.size)
    nats, num_bytes = 0.0, 0
    for hidden in hidden_in(byte_data):
        pieces, unknown = (
            torch.from_numpy(hidden.rows.pieces).long(),
            torch.from_numpy(hidden.hidden),
        )
        document = torch.from_numpy(hidden.rows.coordinates.document).long()
        shown = pieces.masked_fill(unknown, byte_data.tokenizer.specials.mask)
        states = model(shown, Coordinates(torch.arange(pieces.shape[1])[None], document=document))
        logs = model.logits(states).log_softmax(-1).gather(-1, pieces[..., None])[..., 0]
        row, slot = np.nonzero(hidden.chosen.weight)
        nats -= float(logs[row, hidden.chosen.where[row, slot]].detach().sum())
        num_bytes += hidden.num_bytes
    figures = bits_per_byte(model, model.recipe, byte_data)
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / num_bytes, rel=1e-4)


def test_the_same_words_are_hidden_for_every_tokenizer(data: Data, byte_data: Data) -> None:
    letters, in_bytes = ("".join(hidden_texts(d)).lower().split() for d in (data, byte_data))
    assert "".join(letters) == "".join(in_bytes)
    assert len("".join(letters)) > 200


def test_bytes_are_those_of_the_hidden_words(data: Data, byte_data: Data) -> None:
    sums = []
    for each in (data, byte_data):
        hidden = hidden_in(each)
        sums.append((sum(h.num_bytes for h in hidden), sum(h.num_words for h in hidden)))
    assert sums[0] == sums[1]
    words = " ".join(hidden_texts(data)).split()
    assert sums[0] == (sum(len(w) for w in words), len(words))


def test_about_a_seventh_of_the_words_is_hidden_within_the_bytes_given(data: Data) -> None:
    split = data.split("heldout")
    total = int(split.word_bytes(0, split.num_pieces).sum())
    for most in (total // 2, total):
        num_bytes = sum(hidden.num_bytes for hidden in hidden_in(data, most))
        assert num_bytes == pytest.approx(0.15 * most, rel=0.25)


def test_rows_hold_every_piece_of_the_documents_once(data: Data) -> None:
    split = data.split("heldout")
    rows = [hidden.rows for hidden in hidden_in(data, length=16) if hidden.num_words > 0]
    assert sum((~own.special).sum() for own in rows) == split.num_pieces
    assert split.marks(0, 1)[0] & WORD_START


def test_bits_per_byte_of_a_model_that_knows_nothing(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # all that is held out is read
    hidden = hidden_in(data)
    pieces = sum(h.chosen.weight.sum() for h in hidden)
    figures = evaluate(knows_nothing(data), data)
    expected = pieces * math.log2(data.tokenizer.size) / sum(h.num_bytes for h in hidden)
    assert figures["bits_per_byte"] == pytest.approx(expected, rel=1e-4)


def test_no_answer_is_read_in_the_row_before(data: Data) -> None:
    """Rows of contiguous text have no special piece in front: their first place may be hidden."""
    rows = Contiguous(length=16).plan(data.split("train"), data.tokenizer.specials, 0)
    index = np.arange(min(rows.num_rows, 32))
    drawn = rows.rows(index, 0)
    vocabulary = Vocabulary(data.tokenizer.size, data.tokenizer.specials)
    asking = Asking(Draw(0, 0, index), vocabulary, 0.0, {})
    for shift in (0, 1):
        objective = Masked(shift=shift, selection=Tokens(rate=Constant(value=0.5)))
        _, question = objective.ask(drawn, asking)
        asked = question.where[question.weight > 0]
        assert bool((asked % 16 == 0).any()) == (shift == 0)


@pytest.mark.parametrize(
    "objective", [Masked(), Masked(shift=1), Causal(), Causal(direction="both"), Permutation()]
)
def test_the_same_pieces_are_asked_whoever_asks(data: Data, objective: Objective) -> None:
    for hidden in hidden_in(data):
        asked = hidden.asked({"own": objective}, vocabulary_of(data))
        assert asked is not None
        own, expected = asked.questions["own"], masks(hidden, data)
        np.testing.assert_array_equal(own.weight, expected.weight)
        counts = own.weight > 0
        np.testing.assert_array_equal(own.target[counts], expected.target[counts])


@pytest.mark.parametrize("system", ["modern", "gpt-2", "gpt-bert", "xlnet"])
def test_who_names_a_piece_does_not_see_it(data: Data, system: str) -> None:
    recipe = small(system)
    model = Model.build(recipe, data.tokenizer.size)
    objectives = recipe.objectives_of(len(recipe.phases) - 1)
    hidden = hidden_in(data)[0]
    where, weight, unit = hidden.chosen.where, hidden.chosen.weight, hidden.chosen.unit
    one = replace(hidden, chosen=Chosen(where[:, :1], weight[:, :1], unit[:, :1]))
    pieces = one.rows.pieces.copy()
    # A causal model sees those before, so that only the first of a row is one that it may not see.
    pieces[hidden.hidden] = data.tokenizer.encode("z")[0]
    altered = replace(one, rows=replace(one.rows, pieces=pieces))
    asked, other = (each.asked(objectives, vocabulary_of(data)) for each in (one, altered))
    assert asked is not None
    assert other is not None
    [name] = asked.questions
    other.questions[name] = asked.questions[name]
    first, second = (
        model.losses(TensorBatch(batch), {name: objectives[name]})[name].sum
        for batch in (asked, other)
    )
    assert float(first.detach()) == float(second.detach())


def test_a_model_that_reads_only_backwards_is_not_asked(data: Data) -> None:
    backwards = {"causal": Causal(direction="backward")}
    assert hidden_in(data)[0].asked(backwards, vocabulary_of(data)) is None
