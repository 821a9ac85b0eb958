"""Generation by continuing: cached or not, alone or in company, it is the same text."""

import math

import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.generating.generate import slowness
from bertwright.model.generating.rows import CachedRows, WholeRows
from bertwright.model.likelihood import log_probabilities, reading_rule
from bertwright.model.text_model import TextModel
from bertwright.objectives import Causal
from bertwright.text.tokenizers import ByteBpeChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import SYSTEMS, published, shaken, toy

TEXT = "the cat sees a dog and the dog sees the sea, and a cat sits by the sea"
PROMPTS = ["the cat", "", "a dog sees the cat and the", "dogs"]
CAUSAL = [
    system
    for system in SYSTEMS
    if any(isinstance(o, Causal) for o in published(system).objectives.values())
]
CHANGES = [
    *((system,) for system in CAUSAL),
    *(
        ("gpt", f"encoder.positions.kind={kind}")
        for kind in ("sinusoidal", "alibi", "bucketed", "log-buckets", "none")
    ),
    ("gpt", "encoder.positions=rotary", "encoder.local={every: 2, window: 3}"),
    ("transformer-xl", "encoder.memory=5", "encoder.positions=rotary"),
    ("gpt", "encoder.depth={kind: sandwich, layers: 2, outside: 0.5}"),
    ("gpt", "encoder.depth.sharing=all"),
    ("gpt", "encoder.visibility={kind: or, rules: [{kind: window, size: 3}, {kind: global}]}"),
    ("gpt", "encoder.norm.placement=pre", "encoder.residual.kind=reversible"),
    ("gpt", "encoder.mixer={kind: fixed-patterns, head_width: 16, patterns: [left]}"),
    ("gpt", "encoder.mixer={kind: random-features, head_width: 16, features: 8}"),
    (
        "universal-transformer",
        "encoder.visibility.kind=causal",
        "assembly={kind: packed, length: 24}",
        "objectives={masked: null, causal: {}}",
    ),
]
every_causal = pytest.mark.parametrize("changes", CHANGES, ids="/".join)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT], ByteBpeChoice(size=290))


def made(tokenizer, system: str, *changes: str) -> TextModel:
    """A toy that has opinions: far from its start, where every piece is as likely as another."""
    recipe = toy(system, f"text.tokenizer.size={tokenizer.size}", *changes)
    model = shaken(Model.build(recipe, tokenizer.size), 0.1)
    return TextModel(model, tokenizer, "float32")


@every_causal
def test_log_probabilities_step_by_step_are_those_of_one_pass(tokenizer, changes) -> None:
    model = made(tokenizer, *changes)
    specials, assembly = tokenizer.specials, model.model.recipe.assembly
    for found in model.generate(PROMPTS, max_new_tokens=12, seed=1):
        opened = [assembly.opening(specials), *tokenizer.encode(found.prompt)]
        (once,) = log_probabilities(model.model, [[*opened, *found.pieces]], specials.pad)
        assert found.log_probabilities == pytest.approx(once[len(opened) - 1 :], abs=1e-5)


@every_causal
def test_a_text_is_the_same_alone_and_in_company(tokenizer, changes) -> None:
    model = made(tokenizer, *changes)
    together = model.generate(PROMPTS, max_new_tokens=8, num_samples=2, seed=3)
    assert [(c.prompt, c.sample) for c in together] == [(p, s) for p in PROMPTS for s in (0, 1)]
    for number, prompt in enumerate(PROMPTS):
        alone = model.generate(prompt, max_new_tokens=8, num_samples=2, seed=3)
        for one, other in zip(alone, together[2 * number :], strict=False):
            assert (one.pieces, one.text) == (other.pieces, other.text)
            assert one.log_probabilities == pytest.approx(other.log_probabilities, abs=1e-5)


@every_causal
@torch.no_grad()
def test_the_cache_is_used_where_it_may_be_and_changes_nothing(tokenizer, changes) -> None:
    model = made(tokenizer, *changes).model
    kept = model.recipe.encoder.caches
    assert (slowness(model.recipe) is None) == kept
    if not kept:
        return
    rule, pad = reading_rule(model), tokenizer.specials.pad
    rows = [[2, 9, 8, 7], [2], [2, 30, 11]]
    cached = CachedRows(model, rows, rule, pad, model.remembers or None, None)
    whole = WholeRows(model, rows, rule, pad, None)
    for piece in range(20, 32):
        torch.testing.assert_close(cached.logits(), whole.logits(), atol=1e-5, rtol=1e-5)
        for growing in (cached, whole):
            if piece == 25:
                growing.select([2, 0])
            growing.append([piece, piece + 1, piece + 2][: 3 if piece < 25 else 2])


@pytest.mark.parametrize("system", ["gpt", "xlnet"])
def test_a_text_goes_on_in_its_language(tokenizer, system) -> None:
    model = made(tokenizer, system, "encoder.embeddings.languages=[en, de]")
    greedy = {"temperature": 0, "max_new_tokens": 9}
    english, german = (model.generate("the", language=own, **greedy)[0] for own in ("en", "de"))
    assert english.pieces == model.generate("the", **greedy)[0].pieces
    assert german.pieces != english.pieces
    with torch.no_grad():
        table = model.model.encoder.embeddings.languages.weight
        table[0] = table[1]
    found = model.generate("the", **greedy)[0]
    assert found.pieces == german.pieces
    assert found.log_probabilities == pytest.approx(german.log_probabilities, abs=1e-5)
    with pytest.raises(UserError, match="did you mean 'de'"):
        model.generate("the", language="dee")
    with pytest.raises(UserError, match="in the language of the prompt"):
        model.generate("the", into="de")


def test_what_reads_from_the_end_says_so(tokenizer) -> None:
    changes = ("encoder.visibility=reversed", "encoder.memory=0")
    model = made(tokenizer, "lstm-lm", "objectives.causal.direction=backward", *changes)
    with pytest.raises(UserError, match="reads texts from their end"):
        model.generate("the")
    with pytest.raises(UserError, match="reads texts from their end"):
        model.score(["the cat"])


def test_greedy_takes_the_most_probable_piece_whatever_the_seed(tokenizer) -> None:
    model = made(tokenizer, "gpt")
    one, other = (model.generate("the", temperature=0, seed=s, max_new_tokens=9)[0] for s in (0, 1))
    assert one == other
    assert one.pieces != model.generate("the", seed=1, max_new_tokens=9)[0].pieces
    ids = [tokenizer.specials.start, *tokenizer.encode("the")]
    for piece in one.pieces:
        with torch.no_grad():
            logits = model.model.logits(model.model(torch.tensor([ids]))[:, -1])[0]
        named = logits[[i for i in range(tokenizer.size) if i not in (0, 1, 3, 4)]]
        assert float(logits[piece]) == pytest.approx(float(named.max()), abs=1e-4)
        ids.append(piece)


def test_a_rule_that_asks_how_long_a_text_is_makes_none(tokenizer) -> None:
    rule = "{kind: or, rules: [{kind: window, size: 3}, {kind: global, last: 1}]}"
    with pytest.raises(UserError, match="asks how long a text is"):
        made(tokenizer, "gpt", f"encoder.visibility={rule}").generate("the")


def test_why_a_text_ends(tokenizer) -> None:
    model = made(tokenizer, "gpt", "encoder.positions.size=24")
    ending = model.generate(PROMPTS, seed=2)
    assert {c.stopped for c in ending} <= {"end", "full"}
    for found in ending:
        length = 1 + len(tokenizer.encode(found.prompt)) + len(found.pieces)
        assert (found.stopped == "full") == (length == 25)
        assert (found.stopped == "end") == (found.pieces[-1] == tokenizer.specials.end)
    (short,) = model.generate("the", max_new_tokens=2)
    assert (short.stopped, len(short.pieces)) == ("limit", 2)


def test_a_text_ends_before_the_first_stop(tokenizer) -> None:
    model = made(tokenizer, "gpt")
    (free,) = model.generate("the cat", max_new_tokens=20, seed=5)
    inside = free.text[4:6]
    (found,) = model.generate("the cat", max_new_tokens=20, seed=5, stop=["never there", inside])
    assert found.stopped == "stop"
    assert found.text == free.text[: free.text.find(inside)]
    assert found.pieces == free.pieces[: len(found.pieces)]


def test_special_pieces_are_never_generated(tokenizer) -> None:
    found = made(tokenizer, "gpt").generate(["a"], num_samples=40, temperature=3.0)
    specials = tokenizer.specials
    assert not {p for c in found for p in c.pieces} & (specials.all - {specials.end})
    assert len({c.pieces for c in found}) == 40


def test_a_memory_lets_a_text_go_on_without_end(tokenizer) -> None:
    model = made(tokenizer, "transformer-xl", "encoder.memory=8")
    (found,) = model.generate("the cat " * 12, max_new_tokens=60, temperature=2.0)
    assert found.stopped in ("limit", "end")
    assert all(math.isfinite(value) for value in found.log_probabilities)


def test_a_causal_model_scores_a_text_by_what_its_pieces_are_given_those_before(tokenizer) -> None:
    model = made(tokenizer, "gpt")
    ids = [tokenizer.specials.start, *tokenizer.encode(TEXT)]
    with torch.no_grad():
        logs = model.model.logits(model.model(torch.tensor([ids]))[0, :-1]).log_softmax(-1)
    expected = sum(float(row[piece]) for row, piece in zip(logs, ids[1:], strict=True))
    assert model.score([TEXT, "a"])[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -1.0}, "generate: temperature: must be 0 .* or more, not -1.0"),
        ({"temperature": math.nan}, "temperature: must be a finite number, not nan"),
        ({"top_p": 0.0}, "top_p: must be more than 0 and at most 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: must be more than 0"),
        ({"stop": ""}, "stop: must hold no empty text"),
        ({"by": "causual"}, "asks no question 'causual': did you mean 'causal'"),
        ({"prompts": "the cat " * 20}, "is longer than the 24 that the model reads: shorten it"),
    ],
)
def test_what_cannot_be_is_named(tokenizer, settings, message) -> None:
    model = made(tokenizer, "gpt", "encoder.positions.size=24")
    with pytest.raises(UserError, match=message):
        model.generate(**({"prompts": "the"} | settings))


def test_a_model_that_names_no_pieces_says_so(tokenizer) -> None:
    with pytest.raises(UserError, match="cannot generate: it asks replaced-token, generated"):
        made(tokenizer, "electra").generate("the")
