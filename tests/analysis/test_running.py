"""Analyses from names to a page: what is asked for is answered, on files alone."""

import json
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
from bertwright.analysis.running import analyse, chosen
from bertwright.analysis.texts import read_file, read_texts
from bertwright.errors import UserError
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import TableReader


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
