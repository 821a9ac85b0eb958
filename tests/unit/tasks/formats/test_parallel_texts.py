"""Sources and targets are read from columns, from parallel files, and from titled documents."""

import gzip
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.parallel_texts import ParallelTextReader
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.formats.titles import TitleReader

READER = ParallelTextReader(columns=Columns("en", label="de"))


def test_parallel_files_and_columns_give_the_same_examples(tmp_path: Path) -> None:
    pairs = [("A dog.", "Ein Hund."), ("A  cat", "Eine Katze"), ("1.0", "null")]
    expected = [Example(text, label=label) for text, label in pairs]
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"A dog.\nA  cat\n\n1.0\n"))
    (tmp_path / "train.de").write_text("Ein Hund.\n Eine Katze\n\nnull\n")
    (tmp_path / "t.tsv").write_text("\n".join(["en\tde", *map("\t".join, pairs)]) + "\n")
    assert READER.read(tmp_path / "train.en.gz") == expected
    assert READER.read(tmp_path / "t.tsv") == expected
    unlabelled = READER.read(tmp_path / "train.en.gz", with_labels=False)
    assert [e.text for e in unlabelled] == ["A dog.", "A  cat", "", "1.0"]
    assert {e.label for e in unlabelled} == {None}


@pytest.mark.parametrize(
    ("german", "message"),
    [
        ("Ein Hund.\n", "train.en has more lines than .*train.de"),
        ("Ein Hund.\nEine Katze\nmehr\n", "train.de has more lines than .*train.en"),
        ("Ein Hund.\n\n", "train.de line 2 is empty"),
        (None, "there is no train.de beside it"),
    ],
)
def test_files_that_are_not_parallel_are_refused(tmp_path, german, message) -> None:
    (tmp_path / "train.en").write_text("A dog.\nA cat\n")
    if german is not None:
        (tmp_path / "train.de").write_text(german)
    with pytest.raises(UserError, match=message):
        READER.read(tmp_path / "train.en")


def test_an_empty_target_in_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("en\tde\nA dog.\t\n")
    with pytest.raises(
        UserError, match=r"t.tsv line 2, column 'de': the text to generate is empty"
    ):
        READER.read(tmp_path / "t.tsv")


def test_titles_and_first_paragraphs(tmp_path: Path) -> None:
    file = tmp_path / "pages.txt"
    file.write_text("Bees\nBees fly.\nThey sting.\n\n\nAlone\n\nAnts\nAnts walk.\n")
    assert [(e.text, e.label) for e in TitleReader().read(file)] == [
        ("Bees fly.", "Bees"),
        ("Ants walk.", "Ants"),
    ]
    longer = TitleReader(paragraphs=2).read(file, with_labels=False)
    assert [(e.text, e.label) for e in longer] == [
        ("Bees fly. They sting.", None),
        ("Ants walk.", None),
    ]
