"""What is found in states: their means, their tags, their halves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.geometry.senses import nearest_alike
from bertwright.analysis.geometry.sentence_vectors import CENTRED, POOLINGS, pooled
from bertwright.analysis.geometry.two_senses import SENTENCES as TWO_SENSES
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_subject
from bertwright.analysis.probing.linear import control_tags
from bertwright.analysis.probing.numbers import Numbers
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import means, word_states
from bertwright.encoder.passage import Halting
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree


def test_states_are_written_once_and_are_the_means_of_pieces(tmp_path: Path) -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, [Example(t) for t in SENTENCES]), cache=tmp_path)
    found = word_states(case)
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    text = case.texts[2]
    with torch.inference_mode(), subject.encoder.record("blocks.1.residual") as values:
        subject.encoder(torch.tensor([text.pieces]))
    own = means(values["blocks.1.residual"][0], text.word).float().numpy()
    np.testing.assert_allclose(found.states[2][found.text == 2], own, rtol=1e-6)
    assert tuple(np.array(found.words)[found.text == 2]) == text.words
    word_states(case)
    assert file.stat().st_mtime_ns == written


def test_words_that_have_halted_stay_as_they_are() -> None:
    subject = small_subject("universal-transformer")
    halting = subject.encoder.passage
    assert isinstance(halting, Halting)
    with torch.no_grad():
        halting.unit.bias.fill_(60.0)
    case = Case(subject, read_texts(subject, [Example(t) for t in SENTENCES]))
    states = word_states(case).states
    assert (states[0] != states[1]).any()
    assert all((own == states[1]).all() for own in states[2:])


def trees(number: int = 60) -> list[Tree]:
    """Tags that follow from the word alone."""
    generator = np.random.default_rng(0)
    tags = {word: ("NOUN", "VERB", "DET")[n % 3] for n, word in enumerate(WORDS)}
    found = []
    for _ in range(number):
        words = tuple(generator.choice(WORDS, 8))
        own = tuple(tags[word] for word in words)
        found.append(Tree(words, (-1,) + (0,) * 7, ("root",) + ("dep",) * 7, own))
    return found


def test_what_words_tell_a_probe_reads_before_the_blocks(tmp_path: Path) -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, trees()), cache=tmp_path)
    found = Analysis.choose("linear-probe").run(case)
    accuracy, control = found.arrays["scores"].T
    # Every tag follows from its word, as those of the control do: nothing is selective.
    assert accuracy[0] > 0.98
    assert control[0] > 0.98
    (first, *_) = [f for f in found.findings if f.metric == "selectivity"]
    assert first.interval[0] <= 0.02


@pytest.mark.parametrize(
    "choice",
    [
        "token-identity",
        "word-places",
        "linear-probe",
        "description-length",
        {"kind": "structural-probe", "epochs": 1},
        {"kind": "edge-probe", "epochs": 1, "seeds": 2},
        {"kind": "numbers", "below": 40, "most": 20},
        {"kind": "main-auxiliary", "learned": 20, "judged": 10},
    ],
)
def test_the_last_layer_counts_as_many_as_there_are(choice: str | dict[str, Any]) -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, trees(8)))
    found = [own.as_dict() for own in Analysis.choose(choice).run(case).findings]
    assert max(own["layer_from_1"] for own in found if "layer" in own) == subject.num_layers


def test_tags_that_nobody_can_know_are_not_read(tmp_path: Path) -> None:
    subject, generator = small_subject(), np.random.default_rng(1)
    texts = [
        Tree(t.words, t.heads, t.relations, tuple(generator.choice(["A", "B"], 8))) for t in trees()
    ]
    found = Analysis.choose("linear-probe").run(
        Case(subject, read_texts(subject, texts), cache=tmp_path)
    )
    assert abs(found.arrays["scores"][:, 0] - 0.5).max() < 0.12


def test_control_tags_are_of_words_and_as_frequent_as_tags() -> None:
    words = [str(n % 500) for n in range(2000)]
    tags = np.array(["A"] * 1500 + ["B"] * 500)
    found = control_tags(words, tags, 0)
    assert (found != control_tags(words, tags, 0, 1)).any()
    assert all(len(set(found[n::500])) == 1 for n in range(500))
    assert (found == "A").mean() == pytest.approx(0.75, abs=0.06)


def test_occurrences_of_one_sense_are_nearest_each_other() -> None:
    senses = np.repeat([0, 1], 6)
    apart = np.zeros((12, 4))
    apart[np.arange(12), senses] = 1
    assert nearest_alike(apart, senses) == 1
    assert nearest_alike(apart, np.tile([0, 1], 6)) == pytest.approx(2 / 5)
    assert nearest_alike(np.ones((12, 4)) / 2, senses) == pytest.approx(5 / 11)


def test_every_sense_has_sentences_that_say_its_word_once() -> None:
    for word, senses in TWO_SENSES.items():
        assert [len(sense) for sense in senses] == [6, 6]
        assert all(said.split().count(word) == 1 for sense in senses for said in sense)


def test_numbers_that_are_unknown_words_are_all_alike() -> None:
    asked = Numbers(below=100, most=40)
    found = asked.run(Case(small_subject(), []))
    told = {(f.metric, f.layer): f.value for f in found.findings}
    for question in asked.questions(0):
        learned, judged = (question.values[of] for of in (question.learned, ~question.learned))
        errors = ((judged - learned.mean()) ** 2).mean()
        for layer in (0, 2):
            expected = errors / question.values.var()
            assert told[question.name, layer] == pytest.approx(expected)


def test_places_that_are_all_alike_make_one_vector() -> None:
    """Without positions, and with blocks that write nothing, a word said again and again."""
    subject = small_subject("bert", "encoder.positions.kind=none")
    with torch.no_grad():
        for name, parameter in subject.encoder.blocks.named_parameters():
            if "output" in name or "down" in name:
                parameter.zero_()
    vectors = dict(zip(POOLINGS, pooled(Case(subject, []), [("lamp",) * 5]), strict=True))
    assert vectors["mean of words"].shape == (1, 32)
    np.testing.assert_allclose(vectors["mean of two layers"], vectors["mean of words"], rtol=1e-6)


def test_vectors_of_halves_are_reported() -> None:
    subject = small_subject()
    said = [" ".join(np.random.default_rng(n).choice(WORDS, 10)) for n in range(6)]
    found = Analysis.choose("sentence-vectors").run(
        Case(subject, read_texts(subject, [Example(own) for own in said]))
    )
    assert [f.metric for f in found.findings[:8]] == [*POOLINGS, CENTRED]
    assert all(0 <= f.value <= 1 for f in found.findings[:8])
