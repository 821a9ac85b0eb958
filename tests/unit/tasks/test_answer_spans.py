"""Targets of answer spans: the tokens that overlap an answer, whatever its ends."""

from dataclasses import replace

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import ExtractiveQuestion
from bertwright.tasks.outputs import SpanOutput
from small_tasks import questions
from toy_recipes import toy

DROPPED = {"zero-width space": "\u200b", "variation selector": "\ufe0f", "accent": "\u0301"}


def question(text: str, answer: str) -> ExtractiveQuestion:
    return ExtractiveQuestion("which", text, (answer,), (text.index(answer),))


def answer_of(tokenizer: Tokenizer, example: ExtractiveQuestion, length: int = 32) -> set[str]:
    """Return the texts that the targets of all windows decode to, "" for none."""
    decoder = SpanOutput(stride=3).build_decoder(())
    texts: set[str] = set()
    for sequence in decoder.encode(
        ExampleEncoder.from_recipe(toy("bert"), tokenizer, length), [example]
    ):
        first, last = decoder.targets([sequence], example)
        span = (sequence.offsets[first - 1][0], sequence.offsets[last - 1][1]) if last else (0, 0)
        texts.add(example.text[slice(*span)])
    return texts - {""} or texts


@pytest.fixture(params=["wordpiece", "byte_bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    ("before", "after"), [("", " "), (" ", ""), (" ", "  "), ("", "\n"), ("\t", "\u00a0")]
)
@pytest.mark.parametrize("length", [20, 40])
def test_spaces_around_an_answer_change_nothing(
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


def test_window_with_a_part_of_the_answer_is_negative(wordpiece: Tokenizer) -> None:
    text = "the tree and the red bird is remarkably old and the red bird is new"
    example = question(text, "tree and the red bird is ")
    decoder = SpanOutput(stride=1).build_decoder(())
    windows = decoder.encode(ExampleEncoder.from_recipe(toy("bert"), wordpiece, 13), [example])
    whole = "tree and the red bird is"
    for row in windows:
        first, last = decoder.targets([row], example)
        read = text[row.offsets[0][0] : row.offsets[-1][1]]
        assert bool(last) == (whole in read)
        if last:
            assert text[row.offsets[first - 1][0] : row.offsets[last - 1][1]] == whole


def test_combining_marks_after_a_token_belong_to_the_span(wordpiece: Tokenizer) -> None:
    example = ExtractiveQuestion("which", "the red bird\u0301\ufe0f is old")
    decoder = SpanOutput().build_decoder(())
    (row,) = decoder.encode(ExampleEncoder.from_recipe(toy("bert"), wordpiece, 32), [example])
    outputs = np.full((len(row.positions), 2), -5.0, np.float32)
    outputs[2, 0], outputs[3, 1] = 4.0, 4.0
    (prediction,) = decoder.decode([row], [outputs], [example])
    assert prediction.value == "red bird\u0301\ufe0f"


def test_answer_without_a_token_is_counted_and_not_trained(wordpiece: Tokenizer) -> None:
    task, encoder = find_task("squad2"), ExampleEncoder.from_recipe(toy("bert"), wordpiece, 32)
    lost = ExtractiveQuestion("which", "the \u200b bird", ("\u200b",), (4,), "lost")
    normal, unanswerable = (
        question("the red bird", "red bird"),
        ExtractiveQuestion("which", "the bird", ()),
    )
    encoded = EncodedTask.encode(task, [normal, lost, unanswerable], [normal], encoder)
    assert encoded.unaligned == [1]
    assert [encoded.sequences[item.start].example_index for item in encoded.items] == [0, 2]
    assert [list(target) for target in encoded.targets] == [[2, 3], [0, 0]]
    with pytest.raises(UserError, match="no token represents the answer"):
        EncodedTask.encode(task, [lost], [normal], encoder)


def test_second_answer_is_used_where_the_first_has_no_token(wordpiece: Tokenizer) -> None:
    text = "the \u200b red bird"
    example = ExtractiveQuestion("which", text, ("\u200b", "red bird"), (4, text.index("red")))
    assert answer_of(wordpiece, example) == {"red bird"}


def test_trailing_space_in_answers_does_not_affect_training(pretrained) -> None:
    def blank(example: ExtractiveQuestion) -> ExtractiveQuestion:
        return replace(example, answers=tuple(f"{answer} " for answer in example.answers or ()))

    def scores(train: list[ExtractiveQuestion]) -> list[float]:
        settings = {
            "learning_rate": 3e-3,
            "dropout": 0.0,
            "epochs": 2,
            "batch_size": 8,
            "compile": False,
        }
        return finetune(pretrained(), "squad2", train=train, dev=questions(), **settings).scores

    assert scores([blank(example) for example in questions()]) == scores(questions())
