"""Answers in characters, targets in tokens: whatever stands at the ends of an answer, the tokens
that overlap it are learned; an answer without a token is counted, not taught as "no answer"."""

from dataclasses import replace

import numpy as np
import pytest

from bertwright.errors import UserError
from bertwright.tasks.answers import SpanAnswer
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Question
from bertwright.tasks.parts import Part
from bertwright.text.tokenizers import Tokenizer
from recipes_at_toy_size import toy
from small_tasks import questions

DROPPED = {"zero-width space": "\u200b", "variation selector": "\ufe0f", "accent": "\u0301"}


def question(text: str, answer: str) -> Question:
    return Question("which", text, (answer,), (text.index(answer),))


def answer_of(tokenizer: Tokenizer, asked: Question, length: int = 32) -> set[str]:
    """The texts that the targets of all windows stand for, "" for none."""
    answering = SpanAnswer(stride=3).build(())
    found: set[str] = set()
    for row in answering.rows(RowMaker.of(toy("bert"), tokenizer, length), [asked]):
        first, last = answering.targets([row], asked)
        span = (row.characters[first - 1][0], row.characters[last - 1][1]) if last else (0, 0)
        found.add(asked.text[slice(*span)])
    return found - {""} or found


@pytest.fixture(params=["wordpiece", "byte_bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    ("before", "after"), [("", " "), (" ", ""), (" ", "  "), ("", "\n"), ("\t", "\u00a0")]
)
@pytest.mark.parametrize("length", [20, 40])
def test_blanks_at_the_ends_of_an_answer_change_nothing(
    tokenizer: Tokenizer, before: str, after: str, length: int
) -> None:
    text = f"the tree and the{before or ' '}red bird{after or ' '}is old"
    assert answer_of(tokenizer, question(text, "red bird"), length) == {"red bird"}
    assert answer_of(tokenizer, question(text, f"{before}red bird{after}"), length) == {"red bird"}


@pytest.mark.parametrize("dropped", DROPPED.values(), ids=DROPPED.keys())
def test_characters_without_a_token_at_the_end_of_an_answer_change_nothing(
    wordpiece: Tokenizer, dropped: str
) -> None:
    text = f"the tree and the red bird{dropped} is old"
    assert answer_of(wordpiece, question(text, f"red bird{dropped}")) == {"red bird"}


def test_a_window_that_holds_a_part_of_the_answer_does_not_have_it(wordpiece: Tokenizer) -> None:
    text = "the tree and the red bird is remarkably old and the red bird is new"
    asked = question(text, "tree and the red bird is ")
    answering = SpanAnswer(stride=1).build(())
    rows = answering.rows(RowMaker.of(toy("bert"), wordpiece, 13), [asked])
    whole = "tree and the red bird is"
    for row in rows:
        first, last = answering.targets([row], asked)
        read = text[row.characters[0][0] : row.characters[-1][1]]
        assert bool(last) == (whole in read)
        if last:
            assert text[row.characters[first - 1][0] : row.characters[last - 1][1]] == whole


def test_the_marks_behind_a_token_are_said_with_it(wordpiece: Tokenizer) -> None:
    asked = Question("which", "the red bird\u0301\ufe0f is old")
    answering = SpanAnswer().build(())
    (row,) = answering.rows(RowMaker.of(toy("bert"), wordpiece, 32), [asked])
    outputs = np.full((len(row.places), 2), -5.0, np.float32)
    outputs[2, 0], outputs[3, 1] = 4.0, 4.0
    (said,) = answering.predictions([row], [outputs], [asked])
    assert said.answer == "red bird\u0301\ufe0f"


def test_an_answer_without_a_token_is_counted_and_not_trained(wordpiece: Tokenizer) -> None:
    task, maker = find_task("squad2"), RowMaker.of(toy("bert"), wordpiece, 32)
    lost = Question("which", "the \u200b bird", ("\u200b",), (4,), "lost")
    found, none = question("the red bird", "red bird"), Question("which", "the bird", ())
    part = Part.of(task, [found, lost, none], [found], maker)
    assert part.unplaced == [1]
    assert [part.rows[item.start].example for item in part.items] == [0, 2]
    assert [list(target) for target in part.targets] == [[2, 3], [0, 0]]
    with pytest.raises(UserError, match="no token of its text stands for the answer"):
        Part.of(task, [lost], [found], maker)


def test_the_second_wording_is_learned_where_the_first_has_no_token(wordpiece: Tokenizer) -> None:
    text = "the \u200b red bird"
    asked = Question("which", text, ("\u200b", "red bird"), (4, text.index("red")))
    assert answer_of(wordpiece, asked) == {"red bird"}


def test_answers_with_a_blank_behind_them_are_learned_as_well_as_those_without(pretrained) -> None:
    def blank(asked: Question) -> Question:
        return replace(asked, answers=tuple(f"{answer} " for answer in asked.answers or ()))

    def scores(train: list[Question]) -> list[float]:
        settings = {"rate": 3e-3, "dropout": 0.0, "epochs": 2, "batch": 8, "compile": False}
        return finetune(pretrained(), "squad2", train=train, dev=questions(), **settings).scores

    assert scores([blank(asked) for asked in questions()]) == scores(questions())
