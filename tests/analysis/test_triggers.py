"""Triggers: what they may be made of, and what is asked behind them."""

from pathlib import Path

import numpy as np

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.behaviour.trigger_answers import PIECES, Answers, groups, put_in_front
from bertwright.analysis.behaviour.trigger_search import Search, allowed_pieces, vectors_of_pieces
from bertwright.analysis.planted.classifiers import bag_of_pieces
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_subject
from bertwright.analysis.running import analyse
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.answers import ClozeAnswer
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example

TEXTS = [Example(text) for text in SENTENCES for _ in range(4)]


def case(subject: Subject, texts: list[Example] = TEXTS) -> Case:
    return Case(subject, read_texts(subject, texts))


def piece(subject: Subject, word: str) -> int:
    found = subject.tokenizer.id(word)
    assert found is not None
    return found


def answers(subject: Subject, right: int | None) -> Answers:
    texts = case(subject).texts
    return Answers(subject, texts, None if right is None else [right] * len(texts), 0)


def search(subject: Subject, candidates: int) -> Search:
    return Search(vectors_of_pieces(subject), allowed_pieces(subject), candidates)


def test_a_step_never_makes_it_cheaper_and_stays_where_nothing_is_dearer() -> None:
    subject = small_subject()
    own, trigger = answers(subject, None), (piece(subject, "the"),) * 2
    found = search(subject, 4).step(own, trigger)
    assert own.asked(found).mean >= own.asked(trigger).mean
    deaf = bag_of_pieces({}, bias=1.0)
    start = (piece(deaf, "ship"),) * 2
    assert search(deaf, 30).step(answers(deaf, 1), start) == start


def test_special_pieces_and_labels_are_in_no_trigger() -> None:
    subject = small_subject()
    allowed = allowed_pieces(subject, {"lamp"})
    written = {subject.tokenizer.piece(n) for n in allowed.nonzero()[:, 0].tolist()}
    assert written == set(WORDS) - {"lamp"}
    generator = np.random.default_rng(0)
    own = search(subject, 1)
    assert not set(own.drawn(500, generator)) & subject.tokenizer.specials.all


def test_the_same_pieces_are_asked_for_behind_a_trigger() -> None:
    subject = small_subject()
    texts = read_texts(subject, [Example("the old keeper lights the lamp", "a ship leaves .")])
    for trigger in ((), (9,), (9, 10, 11)):
        own = [put_in_front(trigger, text) for text in texts]
        (text,) = own
        assert text.pieces[1 : 1 + len(trigger)] == list(trigger)
        assert len(text.pieces) == len(text.parts) == len(text.word) == len(text.marks["first"])
        assert text.marks["opening"].nonzero()[0].tolist() == [0]
        chosen = Asking(subject, own).places(0)
        assert [place - len(trigger) for place in chosen] == Asking(subject, texts).places(0)


def test_what_is_right_is_the_label_or_else_what_the_model_says() -> None:
    subject = bag_of_pieces({"lamp": 5.0}, bias=-0.1)
    texts = [Example("the lamp"), Example("the boat"), Example("the boat", label="yes")] * 4
    found = groups(subject, case(subject, texts).texts, 0)
    assert {label: len(own.texts) for label, own in found.items()} == {"no": 4, "yes": 8}


def test_a_trigger_is_judged_on_texts_that_did_not_choose_it(tmp_path: Path) -> None:
    subject = bag_of_pieces({"lamp": 5.0, "wind": -90.0}, bias=1.0)
    own = case(subject)
    settings = {"kind": "triggers", "size": 1, "steps": 1, "random": 30}
    found = Analysis.choose(settings).run(own)
    told = {finding.metric: finding for finding in found.findings}
    right = told["right with the trigger, yes"]
    assert (right.value, right.note) == (0, "wind")
    assert right.baseline is not None
    assert right.baseline.value > 0.8
    assert right.lead is not None
    assert right.lead[1] < 0
    assert told["right without a trigger, yes"].value == 1
    (answered,) = analyse(own, [Analysis.choose(settings)], tmp_path, lambda line: None)
    assert [each.verdict for each in answered.conclusions] == ["seen", "seen"]


def test_a_model_without_room_reads_shorter_texts() -> None:
    subject = small_subject("bert", "encoder.positions.size=16", "assembly.length=16")
    own = Case(subject, read_texts(subject, [Example(" ".join(WORDS))] * 6))
    assert max(map(len, own.texts)) == 16
    found = Analysis.choose({"kind": "triggers", "steps": 1, "candidates": 2}).run(own)
    assert found.arrays["by step"].shape == (1, 2)
    assert any(finding.metric.endswith(PIECES) for finding in found.findings)


def test_who_cannot_be_asked_says_so() -> None:
    lacks = Analysis.choose("triggers").lacks
    assert lacks(case(small_subject())) is None
    assert "hidden pieces" in str(lacks(case(small_subject("gpt-2"))))
    assert "4 texts" in str(lacks(case(small_subject(), TEXTS[:3])))
    planted = bag_of_pieces({})
    assert lacks(case(planted)) is None
    assert "8 texts" in str(lacks(case(planted, TEXTS[:7])))
    assert isinstance(planted.text_model, FineTuned)
    object.__setattr__(planted.text_model.task, "answer", ClozeAnswer())
    assert "template" in str(lacks(case(planted)))
