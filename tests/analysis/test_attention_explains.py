"""Attention moved with the answer kept: rows that nobody reads do not count, and a search that
finds little denies nothing."""

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Case
from bertwright.analysis.attention.explaining import AttentionExplains, rows_that_reach
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns


def classifier(system: str, read: str) -> Case:
    """A model that reads texts at one place and has learned nothing, with texts."""
    generator = np.random.default_rng(0)
    said = [Example(" ".join(generator.choice(WORDS, 8)), None, "yn"[n % 2]) for n in range(8)]
    head = {"kind": "plain", "read": read}
    model = small_subject(system).text_model
    task = table_task("classes", Columns())
    subject = Subject("c", finetune(model, task, train=said, dev=said, epochs=0, head=head).model)
    return Case(subject, read_texts(subject, said))


def adversary(case: Case) -> np.ndarray:
    """How far attention and answers moved, (N, 2)."""
    return AttentionExplains(draws=1, steps=4).run(case).arrays["adversary"]


def test_rows_that_nobody_reads_do_not_count() -> None:
    """The first place of a causal model sees itself alone: nothing else reaches the answer."""
    np.testing.assert_allclose(adversary(classifier("gpt", "first")), 0, atol=1e-9)
    assert (adversary(classifier("gpt", "last"))[:, 0] > 1e-3).all()


def test_rows_below_reach_the_answer_if_they_are_seen() -> None:
    causal = torch.ones(1, 2, 4, 4).tril()
    diagonal = torch.eye(4).expand(1, 2, 4, 4)
    read = torch.tensor([False, True, False, False])
    both = torch.tensor([True, True, False, False])
    for layers, wanted in (
        ((causal, causal), (both, read)),
        ((causal, diagonal), (read, read)),
        ((causal, causal, diagonal), (both, read, read)),
    ):
        found = rows_that_reach(layers, read)
        assert [own.tolist() for own in found] == [own.tolist() for own in wanted]


def test_an_answer_that_bears_little_lets_attention_move_a_little() -> None:
    case = classifier("bert", "first")
    model = case.subject.text_model
    assert isinstance(model, FineTuned)
    with torch.no_grad():
        for name, parameter in model.net.named_parameters():
            if name.startswith("head") and parameter.ndim == 2:
                parameter *= 200
            if "attention.output.weight" in name:
                parameter *= 20
    moved, answers = adversary(case).T
    assert (moved > 0).all()
    assert (answers <= AttentionExplains().bound).all()


@pytest.mark.parametrize(("interval", "verdict"), [((0.2, 0.3), "seen"), ((0.0, 0.01), "not seen")])
def test_a_search_that_finds_little_denies_nothing(
    interval: tuple[float, float], verdict: str
) -> None:
    names = ("attention moved, answer kept", "answer moves, top less any other")
    found = Found([Finding(name, np.mean(interval), None, None, interval, 20) for name in names])
    stored = Stored({}, [own.as_dict() for own in found.findings], {})
    assert AttentionExplains().conclusions(stored)[1].verdict == verdict
