"""Faults of a text that the doctor names, and a sound text that it leaves in peace."""

from pathlib import Path

import numpy as np
import pytest
from small_recipe import small
from toy_stories import stories

from bertwright.recipes import Recipe
from bertwright.text.histories import prepare_histories
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.doctor import Finding
from bertwright.training.doctor.data_checks import (
    check_data,
    damaged_characters,
    enough_heldout,
    enough_text,
    heldout_fraction,
    plateau,
    special_pieces,
    unknown_pieces,
    unseen_pieces,
)

LINE = "All rights reserved and this page may not be copied without the leave of its owner."


def found(folder: Path, documents: list[str], vocabulary: list[str] | None = None) -> dict:
    """The findings on some documents, by check."""
    (folder / "text.txt").write_text("\n\n".join(documents))
    tokenizer = train_tokenizer(vocabulary or documents, WordPieceChoice(size=160))
    data = prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
    return by_check(check_data(data, small()))


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check.removeprefix("data."): finding for finding in findings}


def test_a_sound_text_gets_no_warning(data: Data) -> None:
    findings = by_check(check_data(data, small()))
    assert {f.verdict for f in findings.values()} <= {"ok", "note"}
    assert all(f.advice for f in findings.values() if f.verdict != "ok")
    entropy = findings["unigram-entropy"]
    assert entropy.figures["unigram_entropy"] == pytest.approx(data.report["unigram_entropy"])


def test_histories_are_looked_at_as_well(tmp_path: Path) -> None:
    events = "".join(f"u{n},i{n + e},{e}\n" for n in range(9) for e in range(6))
    (tmp_path / "events.csv").write_text("user,item,time\n" + events)
    items = prepare_histories(tmp_path / "events.csv", tmp_path / "items", least=1)
    findings = by_check(check_data(items, Recipe.load("bert4rec-tiny")))
    assert findings["encoding"].verdict == "ok"


def test_exact_copies_are_counted(tmp_path: Path) -> None:
    texts = stories(40)
    findings = found(tmp_path, texts + texts[:20])
    assert findings["duplicates"].verdict == "note"
    assert findings["duplicates"].figures["dropped_documents"] == 20


def test_copies_with_another_date_are_found(tmp_path: Path) -> None:
    texts = stories(40)
    findings = found(tmp_path, texts + [f"{text} The old farmer sings." for text in texts[:20]])
    near = findings["near-duplicates"]
    assert near.verdict == "warning"
    assert 10 <= near.figures["similar"] <= 20
    assert "--near-duplicates" in near.advice


def test_a_line_in_every_document_is_named(tmp_path: Path) -> None:
    findings = found(tmp_path, [f"{text}\n{LINE}" for text in stories(60)])
    repeated = findings["repeated-sentences"]
    assert repeated.verdict == "warning"
    assert repeated.figures["most_times"] == pytest.approx(48, abs=8)
    assert "all rights reserved" in repeated.seen


def test_a_tokenizer_of_another_text_shows(tmp_path: Path) -> None:
    other = [text.translate(str.maketrans("aeiou", "bcdfg")) for text in stories(40)]
    assert found(tmp_path, stories(40), vocabulary=other)["unknown"].verdict == "warning"


def test_too_little_text_is_named_with_its_number() -> None:
    recipe = small("modern", "steps=1000", "batch_tokens=256")
    many = enough_text(500, recipe)
    assert (many.verdict, many.figures["epochs"]) == ("warning", 512)
    assert "steps=78 " in many.advice
    assert enough_text(256_000, recipe).verdict == "ok"


@pytest.mark.parametrize(("pieces", "verdict"), [(20, "warning"), (2000, "note"), (10**6, "ok")])
def test_a_small_held_out_split_is_imprecise(pieces: int, verdict: str) -> None:
    assert enough_heldout(pieces, small()).verdict == verdict


def test_numbers_of_the_report_are_judged() -> None:
    report = {"invalid_utf8": 50, "nul_bytes": 0, "bytes": 100_000}
    assert damaged_characters(report).verdict == "warning"
    assert damaged_characters({**report, "invalid_utf8": 1}).verdict == "note"
    assert damaged_characters({**report, "invalid_utf8": 0}).verdict == "ok"
    assert unknown_pieces(0.05, "wordpiece").verdict == "warning"
    assert "byte-bpe" not in unknown_pieces(0.05, "byte-bpe").advice
    assert special_pieces(3).verdict == "note"


def test_rows_that_no_step_trains_are_counted_without_the_letters() -> None:
    letters = np.arange(1000) < 100
    half = unseen_pieces(np.arange(1000) % 2, letters)
    assert (half.verdict, half.figures["unseen"]) == ("warning", 450)
    assert unseen_pieces(np.arange(1000) // 100, letters).verdict == "ok"


def test_the_plateau_is_the_entropy_of_frequencies() -> None:
    assert plateau(np.array([5, 5])).figures["unigram_entropy"] == pytest.approx(np.log(2))


def test_a_held_out_fraction_that_was_not_asked_is_found() -> None:
    for achieved, verdict in ((0.05, "ok"), (0.07, "ok"), (0.49, "warning"), (0.02, "warning")):
        found = heldout_fraction({"heldout_asked": 0.05, "heldout_achieved": achieved})
        assert found.verdict == verdict
        assert ("blank lines" in found.advice) == (verdict == "warning")
