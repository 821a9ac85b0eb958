"""Labels are chosen by how likely a model finds their words, and shots are drawn by seed."""

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.prompting import Prompt, _candidate, _drawn, _scores, _shots, _whole, prompt
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import ByteBpeChoice, Tokenizer
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import shaken, toy
from small_tasks import ENGLISH, classes, pairs

EXAMPLES = classes()[:12]
TEMPLATE = "{text} . it is {label} ."


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([ENGLISH + " it is . label"] * 3, ByteBpeChoice(size=340))


def made(tokenizer: Tokenizer, system: str, *changes: str) -> TextModel:
    recipe = toy(system, f"text.tokenizer.size={tokenizer.size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.size), 0.1)
    return TextModel(model, tokenizer, "float32")


def test_a_causal_model_is_asked_for_the_words_behind_the_prompt(tokenizer: Tokenizer) -> None:
    model, told = made(tokenizer, "gpt"), Prompt(template=TEMPLATE)
    for label in ("old", "new"):
        whole, start, stop = _whole(told, EXAMPLES[1:3], EXAMPLES[0], label)
        assert whole[start:stop] == f" {label}"
        found = _scores(model, told, [_candidate(model, told, EXAMPLES[1:3], EXAMPLES[0], label)])
        with_words, without = model.score([whole[:stop], whole[:start]])
        assert float(found[0]) == pytest.approx(with_words - without, abs=1e-4)


def test_a_masked_model_is_asked_for_what_is_hidden(tokenizer: Tokenizer) -> None:
    model, told = made(tokenizer, "bert"), Prompt(template=TEMPLATE)
    whole, start, stop = _whole(told, [], EXAMPLES[0], "old")
    candidate = _candidate(model, told, [], EXAMPLES[0], "old")
    assert tokenizer.decode(list(candidate.pieces[candidate.part])) == " old"
    logs = _scores(model, told, [candidate])
    number = candidate.part.stop - candidate.part.start
    hidden = whole[:start] + "[MASK]" * number + whole[stop:]
    places = model.fill_mask(hidden, top_k=tokenizer.size)
    pieces = [tokenizer.piece(p) for p in candidate.pieces[candidate.part]]
    chances = [
        next(g.probability for g in place if g.piece == piece)
        for place, piece in zip(places, pieces, strict=True)
    ]
    assert float(logs[0]) == pytest.approx(sum(map(math.log, chances)), abs=1e-4)


@pytest.mark.parametrize("system", ["gpt", "bert"])
def test_a_word_that_is_likely_anyway_wins(tokenizer: Tokenizer, system: str) -> None:
    model = made(tokenizer, system, "output.bias=true")
    ids, part = tokenizer.encode_part("it is new", 5, 9)
    with torch.no_grad():
        model.model.output.bias[ids[part.start]] += 20.0
    settings = {"template": TEMPLATE, "words": {"old": "old", "new": "new"}}
    for comparison in ("sum", "mean"):
        found = prompt(model, EXAMPLES, 2, seeds=2, comparison=comparison, **settings)
        assert {label for seed in found.predictions for label in seed} == {"new"}
        assert found.scores == (found.majority, found.majority)


@pytest.mark.parametrize("system", ["gpt", "bert"])
def test_a_prior_is_what_the_words_have_where_the_text_is_empty(
    tokenizer: Tokenizer, system: str
) -> None:
    model, told = made(tokenizer, system), Prompt(template=TEMPLATE)
    found = prompt(model, EXAMPLES, 0, comparison="prior", template=TEMPLATE)

    def lead(example: Example) -> float:
        rows = [_candidate(model, told, [], example, label) for label in found.labels]
        first, second = _scores(model, told, rows)
        return float(first - second)

    leads = [lead(example) - lead(Example("")) for example in EXAMPLES]
    expected = [found.labels[0] if each > 0 else found.labels[1] for each in leads]
    assert list(found.predictions[0]) == expected


def test_shots_are_other_examples_in_an_order_of_the_seed() -> None:
    for example in EXAMPLES:
        shown = _shots(_drawn(EXAMPLES, 3), example, 5)
        assert example not in shown
        assert len({e.first for e in shown}) == 5
        assert shown == _shots(_drawn(EXAMPLES, 3), example, 5)
    assert _drawn(EXAMPLES, 3) != _drawn(EXAMPLES, 4)
    assert sorted(map(str, _drawn(EXAMPLES, 3))) == sorted(map(str, EXAMPLES))


def test_a_prompt_is_its_shots_and_what_is_asked() -> None:
    told = Prompt(template="{text} + {pair} = {label}!", words={"b": "two"}, between=" / ")
    shots = [Example("x", "{label}", "a"), Example("z", "w", "b")]
    whole, start, stop = _whole(told, shots, Example("p", "q"), "b")
    assert whole == "x + {label} = a! / z + w = two! / p + q = two!"
    assert whole[start:stop] == " two"


def test_several_seeds_give_an_interval_and_no_shots_need_only_one(tokenizer: Tokenizer) -> None:
    model = made(tokenizer, "gpt")
    several = prompt(model, EXAMPLES, 3, seeds=3, template=TEMPLATE).as_dict()
    assert len(several["scores"]) == 3
    assert several["interval"] is not None or len(set(several["scores"])) == 1
    none = prompt(model, EXAMPLES, 0, seeds=3, template=TEMPLATE).as_dict()
    assert (len(none["scores"]), none["interval"]) == (1, None)
    other = prompt(model, EXAMPLES, 1, solved=classes()[20:], template=TEMPLATE)
    assert any(e.first in other.prompt for e in classes()[20:])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"template": "{text}"}, "template: must hold {text}, and {label} once"),
        ({"template": "{text} {lable} {label}"}, "knows {text}, {pair} and {label}, not {lable}"),
        ({"template": "{text} {pair} {label}"}, "{pair} needs a column of second texts"),
        ({"words": {"odl": "x"}}, "no example has the label 'odl'"),
        ({"words": {"old": "new"}}, "every label needs words of its own"),
        ({"shots": 40}, "40 shots need as many other examples; there are 11"),
        ({"shots": 11, "between": " . " * 40}, "take fewer shots"),
    ],
)
def test_what_cannot_be_is_named(tokenizer: Tokenizer, settings: dict, message: str) -> None:
    model = made(tokenizer, "gpt")
    with pytest.raises(UserError, match=message):
        prompt(model, EXAMPLES, **({"shots": 0} | settings))


def test_a_second_text_is_not_left_out(tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"template: \{pair\} needs a place"):
        prompt(made(tokenizer, "gpt"), pairs()[:12], 0, template=TEMPLATE)


def test_the_verb_prints_what_was_promised(tokenizer: Tokenizer, tmp_path: Path) -> None:
    made(tokenizer, "gpt").save(tmp_path / "model")
    rows = [f"{e.first}\t{e.label}\n" for e in EXAMPLES]
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(rows))
    words = [str(w) for w in ("prompt", tmp_path / "model", "--data", tmp_path / "rows.tsv")]
    more = ["--shots", "2", "--seeds", "2", "--words", "old=ancient", "--compare", "mean", "--json"]
    result = CliRunner().invoke(app, [*words, *more], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found) == {
        *("shots", "labels", "examples", "metric", "scores", "mean", "interval", "majority"),
        "prompt",
    }
    assert "\nLabel: ancient" in found["prompt"]


def test_what_was_read_in_training_is_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    read = EXAMPLES[0].first
    (tmp_path / "a.txt").write_text(f"{read}\n")
    training = prepare(tmp_path / "a.txt", tmp_path / "data", tokenizer, heldout=0.0, num_workers=1)
    model = made(tokenizer, "gpt")
    whole = prompt(model, EXAMPLES, 0, training=training, template=TEMPLATE)
    assert whole.read == tuple(example.first == read for example in EXAMPLES)
    others = prompt(model, EXAMPLES[1:], 0, template=TEMPLATE)
    assert whole.as_dict()["read"] == 1
    assert whole.as_dict()["mean_of_unread"] == pytest.approx(others.scores[0])
    all_read = prompt(model, EXAMPLES[:1], 0, training=training, template=TEMPLATE)
    assert all_read.as_dict()["mean_of_unread"] is None
