"""Analyses from names to a page: what is asked for is answered, on files alone."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.classifying import labelled_texts
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import read_found
from bertwright.analysis.planted.classifiers import bag_of_pieces
from bertwright.analysis.planted.models import SENTENCES, small_case, small_subject
from bertwright.analysis.questions import questions
from bertwright.analysis.reports import write_report
from bertwright.analysis.running import AGAINST, analyse, chosen, standing, with_other
from bertwright.analysis.texts import digest, read_file, read_texts
from bertwright.analysis.word_states import word_states
from bertwright.errors import UserError
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example, TaggedWords
from bertwright.tasks.formats.tables import TableReader
from bertwright.tasks.formats.treebank import Tree


@pytest.fixture(scope="module")
def case() -> Case:
    subject = small_subject()
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))


def test_names_numbers_and_groups_are_known() -> None:
    assert [own.own_kind() for own in chosen(["B2"])] == ["attention-shares"]
    assert {own.group for own in chosen(["attention"])} == {"attention"}
    assert {own.own_kind() for own in chosen([])} == set(Analysis.kinds())
    with pytest.raises(UserError, match=r"no analysis 'atention': did you mean 'attention'\?"):
        chosen(["atention"])


def test_all_of_them_leave_their_files_and_one_page(case: Case, tmp_path: Path) -> None:
    answered = analyse(case, chosen([]), tmp_path, lambda line: None)
    page = write_report(case, answered, tmp_path, "now").read_text()
    assert "http" not in page.replace("https://", "http://").split("</head>")[1]
    for own in answered:
        kind = own.analysis.own_kind()
        if own.lacks is not None:
            assert own.lacks in page or own.lacks.split("'")[0] in page
            assert not (tmp_path / f"{kind}.jsonl").exists()
            continue
        stored = read_found(tmp_path, kind)
        assert stored.about["texts"] == len(SENTENCES)
        assert all(np.isfinite(each["value"]) for each in stored.findings)
        assert (tmp_path / f"{kind}.png").stat().st_size > 1000
        json.dumps(own.as_dict())
        for each in own.conclusions:
            assert each.claim.split("'")[0] in page


def test_one_pass_says_what_single_ones_say(case: Case, tmp_path: Path) -> None:
    kinds = ["attention-shares", "attention-entropy"]
    analyse(case, [Analysis.choose(kind) for kind in kinds], tmp_path, lambda line: None)
    for kind in kinds:
        alone = Analysis.choose(kind).run(case)
        together = read_found(tmp_path, kind)
        assert [f["value"] for f in together.findings] == [f.value for f in alone.findings]


def test_what_stands_is_not_asked_again(case: Case, tmp_path: Path) -> None:
    kinds = ["attention-shares", "single-heads"]
    asked = [Analysis.choose(kind) for kind in kinds]
    first = analyse(case, asked, tmp_path, lambda line: None)
    said: list[str] = []
    assert analyse(case, asked, tmp_path, said.append) == first
    assert said == [f"2 of 2 stand in {tmp_path}"]
    fewer = replace(case, texts=case.texts[1:])
    analyse(fewer, asked, tmp_path, lambda line: None)
    assert read_found(tmp_path, kinds[0]).about["texts"] == len(SENTENCES) - 1


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def lose_a_line(file: Path) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        ("jsonl", cut),
        ("jsonl", lose_a_line),
        ("jsonl", lambda file: file.write_text("")),
        ("jsonl", lambda file: file.write_text("5\n[]\n")),
        ("jsonl", lambda file: file.write_bytes(b"\xff\xfe")),
        ("npz", cut),
        ("npz", Path.unlink),
        ("png", Path.unlink),
    ],
)
def test_what_is_damaged_is_asked_again(
    ending: str, damage: Callable[[Path], object], case: Case, tmp_path: Path
) -> None:
    asked = [Analysis.choose("attention-entropy")]
    first = analyse(case, asked, tmp_path, lambda line: None)
    damage(tmp_path / f"attention-entropy.{ending}")
    if ending != "png":
        with pytest.raises(UserError, match="damaged or of another version: run analyse again"):
            read_found(tmp_path, "attention-entropy")
    said: list[str] = []
    assert analyse(case, asked, tmp_path, said.append) == first
    assert not any("1 of 1 stand" in line for line in said)
    assert analyse(case, asked, tmp_path, said.append) == first
    assert said[-1] == f"1 of 1 stand in {tmp_path}"


def test_all_that_is_read_is_part_of_the_question(tmp_path: Path) -> None:
    """Texts whose pieces are the same, and whose trees, tags or labels are not."""
    subject, words = small_subject(), ("a", "ship", "leaves")
    sources = [
        Tree(words, (1, 2, -1), ("det", "nsubj", "root"), ("DET", "NOUN", "VERB"), "line 1"),
        Tree(words, (2, 2, -1), ("det", "nsubj", "root"), ("DET", "NOUN", "VERB")),
        Tree(words, (1, 2, -1), ("det", "obj", "root"), ("DET", "NOUN", "VERB")),
        Tree(words, (1, 2, -1), ("det", "nsubj", "root"), ("DET", "PROPN", "VERB")),
        TaggedWords(words, ("DET", "NOUN", "VERB")),
        Example("a ship leaves"),
        Example("a ship leaves", label="yes"),
        Example("a ship leaves", others=("a lamp",)),
        Example("a ship", "leaves"),
        Example("A ship leaves"),
    ]
    digests = [digest(read_texts(subject, [source])) for source in sources]
    assert len(set(digests)) == len(sources)
    assert digest(read_texts(subject, [replace(sources[0], where="line 2")])) == digests[0]
    asked: list[Analysis] = [Analysis.choose("relation-heads")]
    for source in sources[:3]:
        said: list[str] = []
        analyse(Case(subject, read_texts(subject, [source])), asked, tmp_path, said.append)
        assert not any("stand in" in line for line in said)


def test_all_that_answers_is_part_of_the_question() -> None:
    """A head, the names of classes and a recipe say what weights alone do not."""
    deaf = bag_of_pieces({}, bias=1.0)
    others = [
        bag_of_pieces({"ship": 2.0}, bias=1.0),
        bag_of_pieces({}, bias=1.0, labels=("bad", "good")),
        bag_of_pieces({}, bias=1.0),
    ]
    assert len({own.digest for own in (deaf, *others)}) == 1
    assert [own.identity == deaf.identity for own in others] == [False, False, True]
    small = small_subject()
    lower = small_subject("bert", "encoder.norm.epsilon=0.1")
    lower.text_model.model.load_state_dict(small.text_model.model.state_dict())
    assert (small.digest == lower.digest, small.identity == lower.identity) == (True, False)


def test_states_that_are_cut_are_written_again(case: Case, tmp_path: Path) -> None:
    kept = replace(case, cache=tmp_path)
    before = np.array(word_states(kept).states)
    (file,) = tmp_path.iterdir()
    for damaged in (file.read_bytes()[:-100], file.read_bytes()[:40], b""):
        file.write_bytes(damaged)
        np.testing.assert_array_equal(word_states(kept).states, before)


def test_the_page_has_all_that_stands_of_the_same_question(case: Case, tmp_path: Path) -> None:
    def page(own: Case, name: str, beside: Case | None = None) -> str:
        asked = [Analysis.choose(name)]
        answered = analyse(own, asked, tmp_path, lambda line: None)
        if beside is not None:
            answered = with_other(
                answered, analyse(beside, asked, tmp_path / AGAINST, lambda line: None)
            )
        shown = [*answered, *standing(own, asked, tmp_path, beside, lambda line: None)]
        return write_report(own, shown, tmp_path, "now").read_text()

    entropy, shares = (Analysis.choose(f"attention-{of}").question for of in ("entropy", "shares"))
    assert shares not in page(case, "attention-entropy")
    both = page(case, "attention-shares")
    assert both.index(shares) < both.index(entropy)
    beside = replace(case, subject=case.subject.untrained(1))
    held = replace(case, other=beside.subject)
    assert shares in page(held, "attention-entropy", beside)
    # Of other texts it is another question: what stood has no place on that page.
    assert shares not in page(replace(case, texts=case.texts[1:]), "attention-entropy")


def test_a_verdict_follows_the_interval() -> None:
    def verdict(interval, direction="above", value=0.5):
        return Conclusion("c", "p", value, interval, 0.5, "b", direction).verdict

    assert verdict((0.6, 0.7)) == "seen"
    assert verdict((0.4, 0.7)) == "not seen"
    assert verdict((0.3, 0.4)) == "opposite"
    assert verdict((0.3, 0.4), "below") == "seen"
    assert verdict(None, value=0.6) == "seen"


def test_texts_pairs_and_trees_are_read(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a ship\n\nthe lamp\tthe light\n")
    first, second = read_file(file)
    assert (first.first, first.second, second.second) == ("a ship", None, "the light")
    file.write_text("\n")
    with pytest.raises(UserError, match="holds no texts"):
        read_file(file)
    tree = tmp_path / "trees.conllu"
    tree.write_text(
        "1\tships\tship\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tcome\tcome\tVERB\t_\t_\t9\troot\t_\t_\n"
    )
    with pytest.raises(UserError, match=r"trees\.conllu line 2: the head '9' is no word"):
        read_file(tree)


def test_a_folder_holds_texts_with_labels_for_who_names_them(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("text\tlabel\na ship\tyes\nthe lamp\tno\n")
    deaf = bag_of_pieces({}, bias=1.0)
    model = deaf.text_model
    assert isinstance(model, FineTuned)
    model.task = replace(model.task, reader=TableReader())
    texts = read_texts(deaf, labelled_texts(deaf, tmp_path))
    assert questions(Case(deaf, texts)).asked().right.tolist() == [1, 0]
    with pytest.raises(UserError, match="is a folder, and bert names no classes: give a file"):
        labelled_texts(small_subject(), tmp_path)


def test_a_model_whose_layers_differ_is_answered_or_refused_in_words(tmp_path: Path) -> None:
    cut = small_case("bert", "encoder.cut.heads=[1,2]")
    assert cut.subject.size == "2 layers of 1 to 2 heads"
    answered = analyse(cut, chosen(["attention", "geometry"]), tmp_path, lambda line: None)
    assert {own.lacks is None for own in answered if own.analysis.group == "geometry"} == {True}
    for own in answered:
        if own.analysis.group == "attention":
            assert own.lacks == "a model of 2 layers of 1 to 2 heads: it needs as many in each"


def test_a_model_whose_layers_are_cut_alike_is_one_of_fewer_heads(tmp_path: Path) -> None:
    cut = small_case("bert", "encoder.cut.heads=[1,1]")
    shares = Analysis.choose("attention-shares").run(cut)
    assert {each.head for each in shares.findings} <= {0, None}
