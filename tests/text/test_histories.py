"""Histories: every user is a document of every split, in the order of time."""

import gzip
import time as clock
from itertools import pairwise
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.text.histories import SPLITS, prepare_histories
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer

EVENTS = """who,what,when,stars
b,x,3,1
a,x,30,5
a,y,10,4
a,z z,20,3
b,y,1,2
b,x,2,5
c,x,1,1
c,y,2,1
"""


def made(folder: Path, events: str = EVENTS, least: int = 1, **settings: object) -> Data:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "events.csv"
    file.write_text(events)
    columns = {"user": "who", "item": "what", "time": "when"}
    return prepare_histories(file, folder / "data", least=least, **columns, **settings)  # type: ignore[arg-type]


def histories(data: Data, name: str) -> list[list[str]]:
    split = data.split(name)
    bounds = split.document_starts.tolist()
    return [
        [data.tokenizer.piece(int(piece)) for piece in split.pieces(start, stop)]
        for start, stop in pairwise(bounds)
    ]


def test_the_last_items_are_kept_for_validation_and_test(tmp_path: Path) -> None:
    data = made(tmp_path)
    assert histories(data, "test") == [["y", "x", "x"], ["y", "z_z", "x"]]
    assert histories(data, "heldout") == [["y", "x"], ["y", "z_z"]]
    assert histories(data, "train") == [["y"], ["y"]]
    assert (data.report["users"], data.report["items"], data.report["events"]) == (2, 3, 6)
    # What the splits share is counted once.
    assert (data.report["documents"], data.report["tokens"], data.report["bytes"]) == (2, 6, 8)
    assert data.report["splits"]["heldout"] == {
        "pieces": 4,
        "documents": 2,
        "sentences": 2,
        "words": 4,
    }
    assert list(data.manifest.splits) == list(SPLITS)


def test_every_item_is_a_piece_the_most_frequent_first(tmp_path: Path) -> None:
    tokenizer = made(tmp_path).tokenizer
    assert tokenizer.kind == "items"
    assert [tokenizer.piece(n) for n in range(5, tokenizer.size)] == ["x", "y", "z_z"]
    assert tokenizer.encode("z_z x nothing") == [7, 5, tokenizer.specials.unknown]
    assert tokenizer.decode([7, 5]) == "z_z x"


def test_users_and_items_with_few_events_are_left_out(tmp_path: Path) -> None:
    data = made(tmp_path, EVENTS + "a,y,40,1\n", least=3)
    assert histories(data, "test") == [["y", "x", "x"], ["y", "x", "y"]]


def test_the_items_may_be_those_of_another_data_set(tmp_path: Path) -> None:
    first = made(tmp_path / "first")
    other = made(
        tmp_path / "other",
        "who,what,when\nd,x,2018-09-25\nd,q,2018-09-24 14:27:30\nd,y,2018-09-26\n",
        tokenizer=Tokenizer.load(first.path),
    )
    assert other.tokenizer.hash == first.tokenizer.hash
    assert histories(other, "test") == [["[UNK]", "x", "y"]]


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ("who,what\na,x\n", "no column 'when'.*; choose one with --time"),
        ("who,what,when\na,x,soon\n", "line 2: 'soon' is no time"),
        ("who,what,when\na,x,nan\n", "line 2: 'nan' is no time"),
        ("who,what,when\na,x," + "9" * 4000 + "\n", r"line 2: '9+ \.\.\. 9+' is no time"),
        ("who,what,what,when\na,x,y,1\n", "has two columns 'what'"),
        ("who,what,when\na,,1\n", "line 2 has no item"),
        ("who,what,when\na,[PAD],1\n", r"\[PAD\] is the name of a special piece"),
        ("who,what,when\na,x,1\na,x,2\n", "no user has 3 events"),
        ("who,what,when\n", "no events found"),
        ("", "no events found"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, events: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(tmp_path, events)


def test_dates_have_one_order_in_every_time_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In Berlin 2:30 does not exist on that day, and is read as 3:30.
    times = {"x": "2024-03-31 02:30", "y": "2024-03-31 03:10", "z": "2024-03-31T04:00+00:00"}
    events = "who,what,when\n" + "".join(f"a,{item},{time}\n" for item, time in times.items())
    for zone in ("UTC", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        clock.tzset()
        assert histories(made(tmp_path / zone, events), "test") == [["x", "y", "z"]]
    monkeypatch.undo()
    clock.tzset()


def test_text_and_items_do_not_share_a_tokenizer(tmp_path: Path, wordpiece: Tokenizer) -> None:
    items = made(tmp_path).tokenizer
    (tmp_path / "a.txt").write_text("a story\n\nanother one\n\nthe last")
    with pytest.raises(UserError, match="the tokenizer knows no piece of what was read"):
        prepare(tmp_path / "a.txt", tmp_path / "text", items)
    others = "who,what,when\n" + "".join(f"a,{n},{n}\n" for n in ("11", "12", "13"))
    with pytest.raises(UserError, match="the tokenizer knows no piece of what was read"):
        made(tmp_path / "others", others, tokenizer=items)
    with pytest.raises(UserError, match="a wordpiece tokenizer knows no items"):
        made(tmp_path / "other", tokenizer=wordpiece)


def test_plain_text_holds_no_events(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a story")
    with pytest.raises(UserError, match="events stand in a table"):
        prepare_histories(tmp_path / "a.txt", tmp_path / "data")


def test_the_ratings_of_movielens_are_histories(shared_data: Path, tmp_path: Path) -> None:
    ratings = shared_data / "movielens_small" / "ratings.csv.gz"
    with gzip.open(ratings, "rt") as file:
        num_rows = sum(1 for _ in file) - 1
    data = prepare_histories(
        ratings, tmp_path / "data", user="userId", item="movieId", time="timestamp", least=1
    )
    assert data.report["events"] == num_rows == 79_993
    assert data.split("test").num_documents == data.report["users"] == 500
    assert data.report["unknown_rate"] == 0.0


def test_an_item_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Half of a surrogate pair, which JSON can spell; and a time beyond all numbers."""
    row = '{"user": "u", "item": "%s", "time": %s}\n'
    for item, time, message in (
        (r"i\ud800", "1", "line 1: the item .* holds half of a surrogate pair"),
        ("i", "9" * 400, "line 1: 9+ is no time"),
    ):
        (tmp_path / "a.jsonl").write_text(row % (item, time))
        with pytest.raises(UserError, match=message):
            prepare_histories(tmp_path / "a.jsonl", tmp_path / "out")
