"""Punctuation restoration: tags keep what words lose, and splits are disjoint."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.tasks.baselines.frequency import ConstantBaseline, WordTagBaseline
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.formats.punctuation_restoration import (
    TAGS,
    RestorationReader,
    restoration_examples,
    split_documents,
    tag_text,
)


@pytest.mark.parametrize(
    ("text", "words", "tags"),
    [
        ("Hello, world.", "hello world", "Capitalised, lower."),
        ("NASA (the agency) said: \u201cNo!\u201d", "nasa the agency said no",
         "CAPITALS lower lower lower, Capitalised."),
        ("I don't use e.g. x_1, do I?", "i don't use e.g x_1 do i",
         "Capitalised lower lower lower. lower, lower Capitalised."),
        ("tokenised text , here .", "tokenised text here", "lower lower, lower."),
        ("call `f(x)`, etc., in 2019\u2014twice ...", "call f(x etc in 2019\u2014twice",
         "lower lower, lower, lower lower."),
        ("--- ... !", "", ""),
        ("U.S. A. iPhone \u00c9tude", "u.s a iphone \u00e9tude",
         "CAPITALS. Capitalised. lower Capitalised"),
    ],
)  # fmt: skip
def test_words_and_tags(text: str, words: str, tags: str) -> None:
    tagged = tag_text(text)
    assert tagged.words == tuple(words.split())
    assert tagged.tags == tuple(tags.split())


TEXT = st.text(st.sampled_from("aBc\u00c9\u01c5\u00df9'-_.,?!:;\u2026\u2014\"() \n\t"), max_size=80)


@given(TEXT | st.text(max_size=40))
def test_words_are_bare_and_tags_known(text: str) -> None:
    tagged = tag_text(text)
    assert tagged.tags is not None
    assert len(tagged.words) == len(tagged.tags)
    assert set(tagged.tags) <= set(TAGS)
    for word in tagged.words:
        assert word == word.lower()
        assert word.split() == [word]


@given(st.lists(TEXT, max_size=4), st.integers(1, 7))
def test_windows_keep_every_word_within_its_document(documents: list[str], num_words: int) -> None:
    windows = restoration_examples(documents, num_words)
    assert all(1 <= len(window.words) <= num_words for window in windows)
    expected = [word for document in documents for word in tag_text(document).words]
    assert [word for window in windows for word in window.words] == expected
    separate = [w for document in documents for w in restoration_examples([document], num_words)]
    assert windows == separate


@given(st.lists(st.text(max_size=5), max_size=30), st.integers(0, 3))
def test_split_of_a_document_does_not_depend_on_others(documents: list[str], seed: int) -> None:
    train, test = split_documents(documents, 0.5, seed)
    assert sorted(train + test) == sorted(documents)
    assert not {d.strip() for d in train} & {d.strip() for d in test}
    for document in documents:
        assert split_documents([document], 0.5, seed)[document in test] == [document]


def test_split_fraction_and_seed() -> None:
    documents = [f"document {number}" for number in range(2000)]
    first, second = split_documents(documents, 0.25)[1], split_documents(documents, 0.25, 1)[1]
    assert 420 < len(first) < 580
    assert 0.15 < len(set(first) & set(second)) / len(first) < 0.35


def test_restoration_reader_reads_documents(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("A title\nOne line,\n\n\nAnother.\n")
    tags = [window.tags for window in RestorationReader().read(tmp_path / "x.txt")]
    assert tags == [("Capitalised", "lower", "Capitalised", "lower,"), ("Capitalised.",)]
    (tmp_path / "empty.txt").write_text("...\n")
    with pytest.raises(UserError, match=r"empty\.txt has no words"):
        RestorationReader().read(tmp_path / "empty.txt")


def test_baselines_on_real_text(shared_data: Path) -> None:
    task = find_task("restoration")
    examples = RestorationReader().read(shared_data / "pretrain_en" / "wikinews.txt.gz")
    training, test = examples[:2000], examples[2000:3000]
    constant = ConstantBaseline.fit(task, training)
    assert constant is not None
    majority, by_word = (
        task.score(test, baseline.predict(test))
        for baseline in (constant, WordTagBaseline.fit(training))
    )
    assert majority["macro-f1"] == pytest.approx(0.095, abs=0.01)
    assert majority["macro-f1"] + 0.2 < by_word["macro-f1"] < 0.6
