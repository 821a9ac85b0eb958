"""Which rows a step of a mixture reads."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numbered_text import planned
from pydantic import ValidationError

from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly, MixedRows
from bertwright.examples.assembly.mixture import _quotas

# Documents in three languages by turns; those in the first are long, those in the last short.
TEXT = [[[1] * size] for _ in range(20) for size in (40, 9, 3)]


def mixed(**settings: Any) -> MixedRows:
    stated = {"kind": "mixture", "length": 16, "parts": {"text": {"kind": "doc-sentences"}}}
    source, _ = planned(Assembly.choose(stated | settings), TEXT)
    assert isinstance(source, MixedRows)
    return source


def read(source: MixedRows, first: int, number: int) -> list[tuple[int, int]]:
    index, epoch = source.read_at(0, 0, first, np.arange(number), number)
    return list(zip(index.tolist(), epoch.tolist(), strict=True))


def test_what_parts_need_and_how_they_are_evaluated_reaches_through() -> None:
    parts = {"users": {"kind": "item-history"}, "pairs": {"kind": "connected-pair"}}
    mixture = Assembly.choose({"kind": "mixture", "length": 16, "parts": parts})
    assert mixture.needs == {"histories", "connectives"}
    users = mixture.evaluated.parts["users"]
    assert users == mixture.parts["users"].evaluated != mixture.parts["users"]


def test_an_exponent_of_one_reads_every_row_once_in_an_epoch() -> None:
    source = mixed(alpha=1.0)
    for epoch in range(3):
        rows = read(source, epoch * source.num_rows, source.num_rows)
        assert sorted(rows) == [(index, epoch) for index in range(source.num_rows)]
    assert read(source, 0, 20) != sorted(read(source, 0, 20))


def test_languages_are_drawn_by_their_smoothed_shares() -> None:
    source = mixed(alpha=0.5)
    sizes = np.diff(source.bounds).astype(np.float64)
    p = sizes / sizes.sum()
    q = p**0.5 / (p**0.5).sum()
    assert np.abs(source.shares - q).max() < 1e-9
    index, _ = zip(*read(source, 0, source.num_rows), strict=True)
    counts = np.bincount(source.source_of(np.array(index)), minlength=len(q))
    assert np.abs(counts - source.num_rows * q).max() < 1.0


def test_every_row_of_a_language_is_read_before_one_is_read_again() -> None:
    source = mixed(alpha=0.0)
    rows = read(source, 0, 10 * source.num_rows)
    for language in range(len(source.sources)):
        first, end = source.bounds[language : language + 2].tolist()
        times = Counter(index for index, _ in rows if first <= index < end)
        assert len(times) == end - first
        assert max(times.values()) - min(times.values()) <= 2
    assert len(set(rows)) == len(rows)


def test_rows_do_not_depend_on_how_a_step_is_cut() -> None:
    for alike in (False, True):
        source = mixed(alpha=0.5, alike=alike)
        for step in (0, 3, 12_345):
            whole = source.read_at(7, step, 8 * step, np.arange(8), 8)
            cuts = (np.arange(3), np.arange(3, 8))
            parts = [source.read_at(7, step, 8 * step, cut, 8) for cut in cuts]
            for one, (a, b) in zip(whole, zip(*parts, strict=True), strict=True):
                assert one.tolist() == [*a.tolist(), *b.tolist()]


def test_rows_of_a_step_may_all_be_alike() -> None:
    pairs = {"kind": "translation-pair"}
    parts = {"text": {"kind": "doc-sentences"}, "pairs": pairs}
    source = mixed(alpha=0.5, alike=True, parts=parts, shares={"text": 3, "pairs": 1})
    chosen: list[int] = []
    seen: set[tuple[int, int]] = set()
    for step in range(2000):
        index, epoch = source.read_at(0, step, 8 * step, np.arange(8), 8)
        (one,) = set(source.source_of(index).tolist())
        chosen.append(one)
        seen |= set(zip(index.tolist(), epoch.tolist(), strict=True))
        rows = source.rows(index, epoch)
        assert len(set(rows.coordinates.language[rows.special == 0].tolist())) <= 2
    assert len(seen) == 8 * 2000
    of_pairs = np.array(["-" in source.labels[number] for number in chosen])
    assert of_pairs.mean() == pytest.approx(0.25, abs=0.03)
    assert set(chosen) == set(range(len(source.sources)))


def test_a_batch_of_several_assemblies_is_their_rows() -> None:
    parts = {
        "packed": {"kind": "packed"},
        "streams": {"kind": "packed", "isolated": False},
        "pairs": {"kind": "segment-pair"},
    }
    source = mixed(parts=parts)
    index = np.array([source.bounds[2] + 1, 0, source.bounds[1], source.bounds[2], 3])
    epoch = np.array([0, 2, 1, 4, 0])
    together = source.rows(index, epoch)
    for row, (number, when) in enumerate(zip(index, epoch, strict=True)):
        of = int(source.source_of(np.array([number]))[0])
        alone = source.sources[of].rows(np.array([number - source.bounds[of]]), int(when))
        assert together.pieces[row].tolist() == alone.pieces[0].tolist()
        assert together.special[row].tolist() == alone.special[0].tolist()
        for name in ("position", "segment", "document", "word", "sentence", "language"):
            own = getattr(alone.coordinates, name)
            missing = {"position": list(range(16)), "segment": [0] * 16}
            expected = missing[name] if own is None else own[0].tolist()
            assert getattr(together.coordinates, name)[row].tolist() == expected, name
    assert together.relation is None


def test_a_language_too_small_for_a_row_is_left_out() -> None:
    text = [[[1] * 40], [[1] * 40], [[1] * 2]]
    choice = {"kind": "mixture", "length": 16, "alpha": 0.5, "parts": {"text": {"kind": "packed"}}}
    source, _ = planned(Assembly.choose(choice), text)
    assert isinstance(source, MixedRows)
    assert source.labels == ("de", "en")
    with pytest.raises(UserError, match="too few for one row"):
        planned(Assembly.choose(choice), [[[1] * 2]])


def test_only_the_named_languages_are_read() -> None:
    every = mixed(alpha=1.0)
    source = mixed(alpha=1.0, languages=["de", "en"])
    assert source.labels == ("de", "en")
    kept = [number for number, label in enumerate(every.labels) if label in source.labels]
    assert np.diff(source.bounds).tolist() == np.diff(every.bounds)[kept].tolist()
    with pytest.raises(UserError, match="the data have no nl, but de, en, fr"):
        mixed(alpha=1.0, languages=["nl"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"languages": ["en"]}, "needs alpha"),
        ({"parts": {"text": {"kind": "contiguous"}}}, "order of their own"),
        ({"parts": {"text": {"kind": "mixture", "parts": {"a": "packed"}}}}, "order of their own"),
        ({"parts": {}}, "at least 1"),
        ({"shares": {"test": 1.0}}, "a positive number for each of: text"),
        ({"shares": {"text": 0.0}}, "a positive number for each of: text"),
        ({"alpha": 1.5}, "less than or equal to 1"),
    ],
)
def test_mixtures_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValidationError, ValueError), match=message):
        mixed(**settings)


def test_all_parts_have_the_length_of_the_mixture() -> None:
    choice = Assembly.choose({"kind": "mixture", "length": 64, "parts": {"a": "packed"}})
    assert choice.model_dump()["parts"]["a"]["length"] == 64
    source, _ = planned(choice.model_copy(update={"length": 8}), TEXT)
    assert source.rows(np.zeros(1, np.int64), 0).pieces.shape == (1, 8)


@pytest.mark.parametrize("shares", [(3, 3, 3, 0.1, 0.1, 0.1), (1, 1), (5, 0.1, 0.1, 0.1), (2, 1)])
def test_every_source_has_turns_in_every_round(shares: tuple[float, ...]) -> None:
    for size in range(len(shares), 30):
        quotas = _quotas(np.array(shares), size)
        assert quotas.min() >= 1
        assert quotas.sum() == size
