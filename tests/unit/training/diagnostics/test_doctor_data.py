"""The doctor detects faulty text, and accepts sound text."""

from pathlib import Path

import numpy as np
import pytest

from bertwright.data.interaction_histories import prepare_histories
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor import Diagnostic
from bertwright.training.diagnostics.doctor.data_checks import (
    check_data,
    check_encoding,
    check_epochs,
    check_heldout_fraction,
    check_heldout_size,
    check_special_tokens,
    check_unigram_entropy,
    check_unknown_tokens,
    check_unseen_tokens,
)
from small_recipe import small
from toy_stories import stories

LINE = "All rights reserved and this page may not be copied without the leave of its owner."


def diagnose(
    folder: Path, documents: list[str], vocabulary: list[str] | None = None
) -> dict[str, Diagnostic]:
    """Return the diagnostics of some documents, by check."""
    (folder / "text.txt").write_text("\n\n".join(documents))
    tokenizer = train_tokenizer(vocabulary or documents, WordPieceConfig(vocab_size=160))
    data = prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
    return by_check(check_data(data, small()))


def by_check(diagnostics: list[Diagnostic]) -> dict[str, Diagnostic]:
    return {diagnostic.check.removeprefix("data."): diagnostic for diagnostic in diagnostics}


def test_a_sound_text_gets_no_warning(data: Dataset) -> None:
    diagnostics = by_check(check_data(data, small()))
    assert {f.severity for f in diagnostics.values()} <= {"ok", "note"}
    assert all(f.advice for f in diagnostics.values() if f.severity != "ok")
    entropy = diagnostics["unigram-entropy"]
    assert entropy.metrics["unigram_entropy"] == pytest.approx(data.report["unigram_entropy"])


def test_histories_are_checked(tmp_path: Path) -> None:
    events = "".join(f"u{n},i{n + e},{e}\n" for n in range(9) for e in range(6))
    (tmp_path / "events.csv").write_text("user,item,time\n" + events)
    items = prepare_histories(tmp_path / "events.csv", tmp_path / "items", min_events=1)
    diagnostics = by_check(check_data(items, Recipe.load("bert4rec-tiny")))
    assert diagnostics["encoding"].severity == "ok"


def test_exact_copies_are_counted(tmp_path: Path) -> None:
    texts = stories(40)
    diagnostics = diagnose(tmp_path, texts + texts[:20])
    assert diagnostics["duplicates"].severity == "note"
    assert diagnostics["duplicates"].metrics["dropped_documents"] == 20


def test_near_duplicates_are_reported(tmp_path: Path) -> None:
    texts = stories(40)
    diagnostics = diagnose(
        tmp_path, texts + [f"{text} The old farmer sings." for text in texts[:20]]
    )
    near = diagnostics["near-duplicates"]
    assert near.severity == "warning"
    assert 10 <= near.metrics["similar"] <= 20
    assert "--near-duplicates" in near.advice


def test_a_line_in_every_document_is_reported(tmp_path: Path) -> None:
    diagnostics = diagnose(tmp_path, [f"{text}\n{LINE}" for text in stories(60)])
    repeated = diagnostics["repeated-sentences"]
    assert repeated.severity == "warning"
    assert repeated.metrics["max_repeats"] == pytest.approx(48, abs=8)
    assert "all rights reserved" in repeated.message


def test_a_tokenizer_of_another_text_is_reported(tmp_path: Path) -> None:
    other = [text.translate(str.maketrans("aeiou", "bcdfg")) for text in stories(40)]
    diagnostics = diagnose(tmp_path, stories(40), vocabulary=other)
    assert diagnostics["unknown-tokens"].severity == "warning"


def test_too_many_epochs_are_reported() -> None:
    recipe = small("modern", "steps=1000", "batch_tokens=256")
    many = check_epochs(500, recipe)
    assert (many.severity, many.metrics["epochs"]) == ("warning", 512)
    assert "steps=78 " in many.advice
    assert check_epochs(256_000, recipe).severity == "ok"


@pytest.mark.parametrize(
    ("num_tokens", "severity"), [(20, "warning"), (2000, "note"), (10**6, "ok")]
)
def test_a_small_held_out_split_is_imprecise(num_tokens: int, severity: str) -> None:
    assert check_heldout_size(num_tokens, small()).severity == severity


def test_numbers_of_the_report_are_graded() -> None:
    report = {"invalid_utf8": 50, "nul_bytes": 0, "bytes": 100_000}
    assert check_encoding(report).severity == "warning"
    assert check_encoding({**report, "invalid_utf8": 1}).severity == "note"
    assert check_encoding({**report, "invalid_utf8": 0}).severity == "ok"
    assert check_unknown_tokens(0.05, "wordpiece").severity == "warning"
    assert "byte-bpe" not in check_unknown_tokens(0.05, "byte-bpe").advice
    assert check_special_tokens(3).severity == "note"


def test_unseen_tokens_are_counted_without_single_characters() -> None:
    letters = np.arange(1000) < 100
    half = check_unseen_tokens(np.arange(1000) % 2, letters)
    assert (half.severity, half.metrics["unseen"]) == ("warning", 450)
    assert check_unseen_tokens(np.arange(1000) // 100, letters).severity == "ok"


def test_the_unigram_entropy_is_reported() -> None:
    assert check_unigram_entropy(np.array([5, 5])).metrics["unigram_entropy"] == pytest.approx(
        np.log(2)
    )


def test_a_held_out_fraction_unlike_the_requested_one_is_reported() -> None:
    for achieved, severity in ((0.05, "ok"), (0.07, "ok"), (0.49, "warning"), (0.02, "warning")):
        report = {"heldout_requested": 0.05, "heldout_achieved": achieved}
        diagnostic = check_heldout_fraction(report)
        assert diagnostic.severity == severity
        assert ("blank lines" in diagnostic.advice) == (severity == "warning")
