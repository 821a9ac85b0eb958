"""Every kind of answer is learned by heart, in windows where texts are long, and said in words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.errors import UserError
from bertwright.tasks.answers import (
    Answer,
    ClassAnswer,
    ClosenessAnswer,
    LabelsAnswer,
    OptionAnswer,
    SpanAnswer,
)
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.examples import AnyExample, Example, Options, Question, TaggedWords
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from recipes_at_toy_size import toy
from small_tasks import (
    TEXTS,
    classes,
    numbers,
    options,
    pairs,
    partners,
    questions,
    several_labels,
    similar,
    tagged,
    until,
)

BY_HEART = {"rate": 3e-3, "dropout": 0.0, "decay": 0.0, "compile": False, "batch": 8}


def learned(model, answer: Any, examples: list[Any], **settings: Any) -> FineTuneResult:
    task = Task("own", Answer.choose(answer))
    return finetune(model, task, train=examples, dev=examples, **{**BY_HEART, **settings})


every_body = pytest.mark.parametrize("system", ["bert", "modern", "gpt-2"])


@every_body
@pytest.mark.parametrize(
    ("answer", "examples"),
    [
        ("labels", several_labels()),
        ("option", options()),
        ({"kind": "span", "unanswerable": True}, questions()),
        ({"kind": "closeness", "highest": 5.0}, similar()),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_answer_is_learned_by_heart(
    pretrained, system: str, answer: Any, examples: list[Any]
) -> None:
    untrained = learned(pretrained(system), answer, examples, epochs=0).scores[0]
    enough = until(max(0.81, untrained + 0.01))
    found = learned(pretrained(system), answer, examples, epochs=30, watch=enough)
    assert found.scores[0] > 0.8
    assert found.scores[0] > untrained


@every_body
@pytest.mark.parametrize(
    ("loss", "epochs"), [({"loss": "in-batch", "widths": [8]}, 45), ({"loss": "triplet"}, 30)]
)
def test_what_is_near_is_learned_from_pairs(
    pretrained, system: str, loss: dict[str, Any], epochs: int
) -> None:
    answer = {"kind": "closeness", **loss}
    found = learned(pretrained(system), answer, partners(), epochs=epochs)
    losses = [epoch.loss for epoch in found.training.epochs_seen]
    assert losses[-1] < 0.5 * losses[0]


def test_relevance_ranks_the_texts_of_a_query(pretrained) -> None:
    examples = [
        Example(f"a {colour} thing", text, float(colour in text))
        for colour in ("red", "green")
        for text in TEXTS[::2]
    ]
    found = learned(
        pretrained("bert"), "relevance", examples, epochs=120, rate=2e-3, watch=until(0.95)
    )
    assert found.metric == "ndcg@10"
    assert found.scores[0] > 0.9
    assert all(0 <= p.answer <= 1 for p in found.best.predictions[0])


@pytest.mark.parametrize("loss", ["in-batch", "triplet"])
def test_only_those_that_belong_together_are_brought_together(pretrained, loss: str) -> None:
    answer = {"kind": "closeness", "loss": loss, "highest": 4.0}
    labels = (4.0, 2.0, None, 1.9, 0.0)
    examples = [replace(e, label=labels[n % 5]) for n, e in enumerate(partners())]
    (part,) = learned(pretrained(), answer, examples, epochs=1).training.parts
    assert [e.label for e in part.train] == [e.label for e in examples if e.label in labels[:3]]
    assert len(part.items) == len(part.train)
    assert len(part.dev) == len(examples), "who judges is told of all"
    apart = [replace(e, label=0.0) for e in partners()]
    with pytest.raises(UserError, match=r"label is 2 or more, half of answer\.highest"):
        learned(pretrained(), answer, apart, epochs=1)


def test_what_belongs_together_is_wrong_for_nobody() -> None:
    examples = [
        Example("fruit", "apple"),
        Example("sweet", "apple", others=("lemon",)),
        Example("fruit", "lemon", others=("stone",)),
        Example("hard", "stone"),
    ]
    answering = ClosenessAnswer(loss="in-batch", sharpness=1.0).build(()).fitted(examples)
    # Of the second texts, then the others: what else is right, or right as well, is left out.
    candidates = {"fruit": (0, 3, 5), "sweet": (1, 2, 3, 4, 5), "again": (2, 3, 5)}
    candidates["hard"] = (0, 1, 2, 3, 4)
    outputs = torch.randn(10, 8, generator=torch.Generator().manual_seed(3))
    unit = torch.nn.functional.normalize(outputs, dim=1)
    firsts, texts = unit[[0, 2, 5, 8]], unit[[1, 3, 6, 9, 4, 7]]
    expected = torch.tensor(0.0)
    for number, left in enumerate(candidates.values()):
        near = firsts[number] @ texts[list(left)].T
        expected += near.logsumexp(0) - firsts[number] @ texts[number]
    rows = [[TaskRow([], number)] for number in range(len(examples))]
    targets = [t for of, e in zip(rows, examples, strict=True) for t in answering.targets(of, e)]
    loss, _ = answering.loss(outputs, [2, 3, 3, 2], torch.tensor(targets))
    torch.testing.assert_close(loss, expected)


def test_retrieval_ranks_all_second_texts(pretrained) -> None:
    task = table_task("own", Columns(), ClosenessAnswer(loss="in-batch"), ("recall@1", "mrr@10"))
    settings = {**BY_HEART, "epochs": 40, "watch": until(0.9)}
    found = finetune(pretrained("bert"), task, train=partners(), dev=partners(), **settings)
    assert found.scores[0] > 0.8
    assert found.best.report.scores["own"]["mrr@10"] >= found.scores[0]


def test_a_vector_is_what_embed_gives(pretrained) -> None:
    model = learned(pretrained("bert"), {"kind": "closeness", "highest": 5.0}, similar(), epochs=2)
    first, second = TEXTS[:2]
    a, b = model.model.embed([first, second], normalise=True)
    (said,) = model.model.predict([(first, second)])
    assert said.answer == pytest.approx(float(a @ b), abs=1e-2)


def lost(answer: ClassAnswer | LabelsAnswer, examples: list[Example], of: str) -> tuple[float, ...]:
    """The loss of all outputs 0, of the examples that have a label and of those that have not."""
    task = Task("own", answer).gathered(examples)
    answering = answer.build(task.labels).fitted(examples)
    column = task.labels.index(of)
    found = {True: 0.0, False: 0.0}
    for example in examples:
        targets = torch.tensor(answering.targets([], example))
        outputs = torch.zeros(1, len(task.labels), requires_grad=True)
        loss, _ = answering.loss(outputs, [1], targets)
        # Of one label alone: what pulls at its output.
        (pull,) = torch.autograd.grad(loss, outputs)
        has = of in answer.labels_in(example)
        found[has] += abs(float(pull[0, column]))
    return found[True], found[False]


def test_balanced_weights_let_what_is_rare_pull_as_much() -> None:
    rare = [replace(e, label="old" if n < 2 else "new") for n, e in enumerate(classes())]
    first, second = (lost(ClassAnswer(weights="balanced"), rare, of)[0] for of in ("old", "new"))
    assert first == pytest.approx(second)
    plain = [lost(ClassAnswer(), rare, of)[0] for of in ("old", "new")]
    assert plain[1] / plain[0] == pytest.approx((len(rare) - 2) / 2)
    several = [replace(e, label=("old",) if n < 3 else ()) for n, e in enumerate(classes())]
    having, others = lost(LabelsAnswer(weights="balanced"), several, "old")
    assert having == pytest.approx(others)
    having, others = lost(LabelsAnswer(weights={"old": 4.0}), several, "old")
    assert others / having == pytest.approx((len(several) - 3) / (4 * 3))


@pytest.mark.parametrize("answer", [ClassAnswer, LabelsAnswer])
def test_a_weight_of_no_label_is_refused(answer: type[ClassAnswer | LabelsAnswer]) -> None:
    with pytest.raises(UserError, match=r"answer\.weights: no label 'odl': did you mean 'old'"):
        answer(weights={"odl": 2.0}).build(("new", "old"))


@pytest.mark.parametrize("answer", ["class", "number", "labels"])
def test_a_long_text_is_read_in_windows(pretrained, answer: str) -> None:
    examples = {"class": classes, "number": numbers, "labels": several_labels}[answer]()
    long = [replace(e, first=f"{' the' * 40} {e.first}") for e in examples]
    settings = {"epochs": 1, "length": 16}
    cut = learned(pretrained(), answer, long, **settings)
    whole = learned(pretrained(), {"kind": answer, "stride": 6}, long, **settings)
    assert cut.cut == {"own": len(long)}
    assert whole.cut == {"own": 0}
    assert len(whole.training.parts[0].rows) > len(long)
    assert len(whole.best.predictions[0]) == len(long)


def test_windows_leave_no_piece_out(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 10)
    ids = wordpiece.encode("the red bird is old and remarkably large and the tree is new")
    rows = maker.rows([Example("the red bird is old and remarkably large and the tree is new")], 3)
    assert set(ids) <= {piece for row in rows for piece in row.pieces}
    assert all(len(row.pieces) <= 10 for row in rows)
    assert rows[-1].pieces[-2] == ids[-1]
    pairs = maker.rows([Example("the red bird", "is old and remarkably large and the tree")], 100)
    assert {row.example for row in pairs} == {0}
    assert all(len(row.pieces) <= 10 for row in pairs)


def test_an_answer_stands_where_its_window_says(wordpiece) -> None:
    text = "the tree and the river and the red bird is remarkably old"
    question = Question("which bird", text, ("red bird",), (text.index("red"),))
    maker = RowMaker.of(toy("bert"), wordpiece, 16)
    answering = SpanAnswer(stride=3).build(())
    rows = answering.rows(maker, [question])
    assert len(rows) > 1
    found: list[str] = []
    for row in rows:
        first, last = answering.targets([row], question)
        assert row.places[0] == 0
        if last:
            start, stop = row.characters[first - 1][0], row.characters[last - 1][1]
            found.append(text[start:stop])
    assert found
    assert set(found) == {"red bird"}


@pytest.mark.parametrize("unanswerable", [False, True])
def test_the_best_span_is_said_or_none(wordpiece, unanswerable: bool) -> None:
    text = "the red bird is old"
    maker = RowMaker.of(toy("bert"), wordpiece, 32)
    answering = SpanAnswer(unanswerable=unanswerable).build(())
    (row,) = answering.rows(maker, [Question("which", text)])
    outputs = np.full((len(row.places), 2), -5.0, np.float32)
    outputs[2, 0], outputs[3, 1] = 4.0, 4.0
    (said,) = answering.predictions([row], [outputs], [Question("which", text)])
    assert said.answer == "red bird"
    outputs[0] = 9.0
    (said,) = answering.predictions([row], [outputs], [Question("which", text)])
    assert said.answer == ("" if unanswerable else "red bird")


@pytest.mark.parametrize("unanswerable", [False, True])
def test_a_span_is_as_probable_in_two_windows_as_in_one(wordpiece, unanswerable: bool) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 32)
    question = Question("which", "the red bird is old and the tree is new")
    answering = SpanAnswer(unanswerable=unanswerable).build(())
    (row,) = answering.rows(maker, [question])
    outputs = np.random.default_rng(0).normal(0, 2, (len(row.places), 2)).astype(np.float32)
    once, often = (
        answering.predictions([row] * times, [outputs] * times, [question]) for times in (1, 3)
    )
    assert once == often


def test_an_end_is_not_before_its_beginning(wordpiece) -> None:
    maker = RowMaker.of(toy("bert"), wordpiece, 32)
    question = Question("which", "the red bird is old")
    answering = SpanAnswer(longest_answer=1).build(())
    (row,) = answering.rows(maker, [question])
    outputs = np.zeros((len(row.places), 2), np.float32)
    outputs[4, 0], outputs[2, 1] = 5.0, 5.0
    (said,) = answering.predictions([row], [outputs], [question])
    assert said.answer in ("is", "red")
    assert len(str(said.answer).split()) == 1


def test_options_may_differ_in_number() -> None:
    answering = OptionAnswer().build(())
    outputs = torch.tensor([[1.0], [2.0], [0.0], [3.0], [1.0]])
    loss, right = answering.loss(outputs, [2, 3], torch.tensor([1, 1]))
    expected = -torch.log_softmax(outputs[:2, 0], 0)[1] - torch.log_softmax(outputs[2:, 0], 0)[1]
    assert loss == pytest.approx(float(expected))
    assert int(right) == 2


@pytest.mark.parametrize(
    ("answer", "example", "message"),
    [
        ("class", TaggedWords(("a",), ("b",)), "an answer of class needs Example"),
        ("tags", Example("a", label="b"), "an answer of tags needs TaggedWords"),
        ("span", Options("a", ("b",), label=0), "an answer of span needs Question"),
        ("closeness", Example("a", label=1.0), "a second text is needed"),
        (
            {"kind": "closeness", "loss": "triplet"},
            Example("a", "b"),
            "the loss triplet needs a third text",
        ),
        (
            "closeness",
            Example("a", "b", 5.0, where="x line 3"),
            "x line 3: .* answer.highest",
        ),
        ("closeness", Example("a", "b", -1.0), "the label -1 is not from 0 to 1"),
        (
            {"kind": "closeness", "highest": 5.0},
            Example("a", "b", 1.0),
            "the highest label is 1, and answer.highest, .* is 5",
        ),
        ("relevance", Example("a", "b", -1.0, where="x line 3"), "x line 3: the label -1 is below"),
    ],
)
def test_an_example_of_another_shape_is_refused(
    pretrained, answer: Any, example: AnyExample, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        learned(pretrained(), answer, [example] * 4)


def test_tags_that_training_has_not_met_are_only_wrong(pretrained) -> None:
    odd = [TaggedWords(("The", "red"), ("O", "B-NEW"))]
    task = Task("own", Answer.choose("tags"))
    found = finetune(pretrained(), task, train=tagged(), dev=odd, epochs=1, **BY_HEART)
    assert found.best.predictions[0][0].answer[1] != "B-NEW"


CLOZE = {"kind": "cloze", "template": "{text} and [MASK]", "words": {"old": "old", "new": "new"}}


def test_a_cloze_answers_before_it_has_learned_and_learns(pretrained) -> None:
    for system in ("bert", "modern"):
        model = pretrained(system)
        before = learned(model, CLOZE, classes(), epochs=0)
        found = learned(model, CLOZE, classes(), epochs=16, watch=until(0.95))
        assert found.scores[0] > 0.9
        (said,) = before.model.predict(["The red bird is old"])
        mask = model.fill_mask("The red bird is old and [MASK]", top_k=model.tokenizer.size)[0]
        chances = {guess.piece: guess.probability for guess in mask}
        ratio = chances["old"] / (chances["old"] + chances["new"])
        uncalibrated = learned(model, CLOZE, classes(), epochs=0, calibrate=False)
        (said,) = uncalibrated.model.predict(["The red bird is old"])
        assert said.probabilities["old"] == pytest.approx(ratio, abs=2e-2)


def test_the_gap_stays_when_a_text_is_cut(wordpiece) -> None:
    answering = Answer.choose(CLOZE).build(("new", "old"))
    maker = RowMaker.of(toy("bert"), wordpiece, 12)
    (row,) = answering.rows(maker, [Example("the red bird " * 20)])
    assert len(row.pieces) == 12
    assert row.pieces[row.places[0]] == wordpiece.specials.mask
    assert row.num_cut > 0


def test_the_gap_is_that_of_the_template(wordpiece) -> None:
    plain, odd = "the red bird", "the [MASK] bird"
    for template, gap in (("{text} and [MASK]", -2), ("[MASK] {text} [SEP]", 1)):
        answering = Answer.choose({**CLOZE, "template": template}).build(("new", "old"))
        maker = RowMaker.of(toy("bert"), wordpiece, 12)
        for row in answering.rows(maker, [Example(plain), Example(odd), Example(odd * 9)]):
            assert row.places == (gap % len(row.pieces),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": {"old": "unbelievably old"}}, "'unbelievably old' is no single piece"),
        ({"words": {"old": "bird", "new": "Bird"}}, "'bird' stands for '(old|new)' and for"),
        ({"words": {"odl": "old"}}, "no example has the label 'odl': did you mean 'old'?"),
        ({"template": "{text}"}, r"must hold \{text\}, and \[MASK\] once"),
        ({"template": "{text} {pair} [MASK]"}, "there is no second text"),
    ],
)
def test_a_cloze_that_cannot_be_is_refused(pretrained, changes: Any, message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        learned(pretrained(), {**CLOZE, **changes}, classes(), epochs=0)


def test_a_second_text_is_not_left_out_of_a_cloze(pretrained) -> None:
    with pytest.raises(UserError, match=r"has a second text.* say there where \{pair\} stands"):
        learned(pretrained(), CLOZE, pairs(), epochs=0)


def test_a_cloze_needs_a_model_that_fills_gaps(pretrained) -> None:
    with pytest.raises(UserError, match="gpt names what comes next: use prompt"):
        learned(pretrained("gpt"), CLOZE, classes(), epochs=0)
