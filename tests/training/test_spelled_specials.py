"""Special tokens that a text spells are read, and never masked or predicted."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers as library
from small_recipe import CHANGES
from toy_stories import stories

from bertwright.recipes import Recipe
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer, TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.bits_per_byte import hidden_words
from bertwright.training.doctor.data_checks import check_data
from bertwright.training.doctor.drawing import draw
from bertwright.training.doctor.mask_checks import check_questions
from bertwright.training.evaluation import held_out
from bertwright.training.row_sources import RowSources

KINDS = {
    "wordpiece": {"size": 200},
    "byte-bpe": {"size": 400},
    "unigram": {"size": 200},
    "words": {"size": 200},
    "sentinels": {"kind": "unigram", "size": 220, "sentinels": 20},
    "added": {"kind": "byte-bpe", "size": 400},
}
ADDED = "<|user|>"


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    choice = TokenizerChoice.choose({"kind": kind, **KINDS[kind]})
    tokenizer = train_tokenizer(stories(100), choice)
    if kind != "added":
        return tokenizer
    tokenizer.backend.add_special_tokens([ADDED])
    return Tokenizer(library.Tokenizer.from_str(tokenizer.backend.to_str()))


@pytest.fixture(scope="module", params=KINDS)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Stories with the mask and the padding, and what else is reserved, behind every sentence."""
    tokenizer = tokenizer_of(request.param)
    reserved = tokenizer.reserved - {tokenizer.specials.end, tokenizer.specials.start}
    spelled = " ".join(tokenizer.piece(i) for i in sorted(reserved)[:4])
    texts = [text.replace(". ", f". {spelled} ") for text in stories(80)]
    folder = tmp_path_factory.mktemp("spelled")
    (folder / "text.txt").write_text("\n\n".join(texts))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)


SYSTEMS = [
    "bert",
    "bert-whole-words",
    "spanbert",
    "albert",
    "electra",
    "structbert",
    "xlnet",
    "gpt",
    "gpt-bert",
    "elmo",
    "bart",
    "t5",
    "lstm-autoencoder",
]


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_reserved_token_of_the_text_is_masked_or_predicted(data: Data, system: str) -> None:
    recipe = Recipe.load(system, *CHANGES[3:])
    tokenizer = data.tokenizer
    ends = {tokenizer.specials.start, tokenizer.specials.end, tokenizer.specials.unknown}
    reserved = tokenizer.reserved - ends
    sentinels = {i for i in reserved if tokenizer.piece(i).startswith("<extra_id_")}
    assert reserved
    for phase in range(len(recipe.phases)):
        for turn in recipe.turns_of(phase):
            drawn = draw(recipe, data, phase, turn.objectives)
            spelled = np.isin(drawn.originals.pieces, list(reserved)) & ~drawn.originals.special
            assert spelled.any()
            named = {n: o for n, o in turn.objectives.items() if o.names_pieces}
            for name, objective in named.items():
                question = drawn.batch.questions[name]
                target = question.target[question.weight > 0]
                own = sentinels if objective.decodes else set()
                if system == "t5" and not sentinels:
                    continue  # its last tokens serve as sentinels
                assert not set(target.tolist()) & (reserved - own), name
            if not any(o.rearranges for o in turn.objectives.values()):
                shown = drawn.batch.pieces[:, : spelled.shape[1]]
                assert (shown[spelled] == drawn.originals.pieces[spelled]).all()
            findings = check_questions(drawn, turn.objectives, tokenizer)
            assert all(f.verdict == "ok" for f in findings if f.check == "masks.specials")
        for batch in held_out(recipe, phase, data, 500).batches:
            for name in set(batch.questions) & named.keys():
                question = batch.questions[name]
                if not named[name].decodes:
                    target = question.target[question.weight > 0]
                    assert not set(target.tolist()) & reserved


def test_bits_per_byte_asks_for_no_reserved_token(data: Data) -> None:
    split, specials = data.split("heldout"), data.tokenizer.specials
    reserved = data.tokenizer.reserved
    for hidden in hidden_words(split, specials, specials.start, 32, 10**6, reserved):
        text = hidden.rows.pieces[hidden.hidden]
        assert not np.isin(text, list(reserved)).any()


def test_the_doctor_counts_ids(data: Data) -> None:
    findings = {f.check: f for f in check_data(data, Recipe.load("bert", *CHANGES[3:]))}
    found = findings["data.special-tokens"]
    expected = np.isin(data.split("train").pieces(0, 10**9), list(data.tokenizer.reserved)).sum()
    assert expected > 0
    assert (found.verdict, found.figures["number"]) == ("note", expected)


def test_the_doctor_sees_a_reserved_token_that_is_masked(data: Data) -> None:
    """Whatever the code that masked it takes for special."""
    recipe = Recipe.load("bert", *CHANGES[3:], "phases=[{objectives: {masked: {}}}]")
    drawn = draw(recipe, data, 0)
    spelled = np.isin(drawn.originals.pieces, list(data.tokenizer.reserved))
    where = np.flatnonzero(spelled & ~drawn.originals.special)
    question = drawn.batch.questions["masked"]
    question.where[:1], question.weight[:1] = where[0], 1
    findings = check_questions(drawn, recipe.objectives_of(0), data.tokenizer)
    assert {f.check: f.verdict for f in findings}["masks.specials"] == "error"


def test_sources_leave_the_text_as_it_is(data: Data) -> None:
    """What is reserved is told by its id, so that the doctor sees the text as it was read."""
    recipe = Recipe.load("bert", *CHANGES[3:])
    source = RowSources(recipe, data, "train", 0).of(0, recipe.objectives_of(0))
    assert not source.rows(np.arange(4), 0).spelled.any()


def test_the_unknown_token_is_reserved_only_where_no_text_is_unknown(tmp_path: Path) -> None:
    for kind in KINDS:
        tokenizer = tokenizer_of(kind)
        unknown = tokenizer.specials.unknown in tokenizer.reserved
        assert unknown == (tokenizer.kind == "byte-bpe")
    assert tokenizer_of("added").id(ADDED) in tokenizer_of("added").reserved
