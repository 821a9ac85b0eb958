"""Interaction histories: every user is a document of every split, ordered by time."""

import gzip
import time as clock
from itertools import pairwise
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.interaction_histories import NUM_HELD_OUT_ITEMS, prepare_histories
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer

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


def prepare_events(
    folder: Path, events: str = EVENTS, least: int = 1, **settings: object
) -> Dataset:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "events.csv"
    file.write_text(events)
    columns = {"user_column": "who", "item_column": "what", "time_column": "when"}
    return prepare_histories(file, folder / "data", min_events=least, **columns, **settings)  # type: ignore[arg-type]


def histories(data: Dataset, name: str) -> list[list[str]]:
    split = data.split(name)
    bounds = split.document_starts.tolist()
    return [
        [data.tokenizer.id_to_token(int(token)) for token in split.token_ids(start, stop)]
        for start, stop in pairwise(bounds)
    ]


def test_leave_one_out_splits(tmp_path: Path) -> None:
    data = prepare_events(tmp_path)
    assert histories(data, "test") == [["y", "x", "x"], ["y", "z_z", "x"]]
    assert histories(data, "heldout") == [["y", "x"], ["y", "z_z"]]
    assert histories(data, "train") == [["y"], ["y"]]
    assert (data.report["users"], data.report["items"], data.report["events"]) == (2, 3, 6)
    # What the splits share is counted once.
    assert (data.report["documents"], data.report["tokens"], data.report["bytes"]) == (2, 6, 8)
    assert data.report["splits"]["heldout"] == {
        "tokens": 4,
        "documents": 2,
        "sentences": 2,
        "words": 4,
    }
    assert list(data.manifest.splits) == list(NUM_HELD_OUT_ITEMS)


def test_items_are_tokens_by_frequency(tmp_path: Path) -> None:
    tokenizer = prepare_events(tmp_path).tokenizer
    assert tokenizer.kind == "items"
    assert [tokenizer.id_to_token(n) for n in range(5, tokenizer.vocab_size)] == ["x", "y", "z_z"]
    assert tokenizer.encode("z_z x nothing") == [7, 5, tokenizer.special_tokens.unknown]
    assert tokenizer.decode([7, 5]) == "z_z x"


def test_infrequent_users_and_items_are_dropped(tmp_path: Path) -> None:
    data = prepare_events(tmp_path, EVENTS + "a,y,40,1\n", least=3)
    assert histories(data, "test") == [["y", "x", "x"], ["y", "x", "y"]]


def test_items_of_another_data_set(tmp_path: Path) -> None:
    first = prepare_events(tmp_path / "first")
    other = prepare_events(
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
        ("who,what,when\na,x,soon\n", "line 2: 'soon' is not a time"),
        ("who,what,when\na,x,nan\n", "line 2: 'nan' is not a time"),
        ("who,what,when\na,x," + "9" * 4000 + "\n", r"line 2: '9+ \.\.\. 9+' is not a time"),
        ("who,what,what,when\na,x,y,1\n", "has two columns 'what'"),
        ("who,what,when\na,,1\n", "line 2 has no item"),
        ("who,what,when\na,[PAD],1\n", r"\[PAD\] is the name of a special token"),
        ("who,what,when\na,x y,1\na,x_y,2\n", "line 3: the item 'x_y' and an earlier 'x y' have"),
        ("who,what,when\nx_y,a,1\nx y,a,2\n", "line 3: the user 'x y' and an earlier 'x_y' have"),
        ("who,what,when\na,x,1\na,x,2\n", "no user has 3 events"),
        ("who,what,when\n", "no events found"),
        ("", "no events found"),
    ],
)
def test_invalid_input_raises(tmp_path: Path, events: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare_events(tmp_path, events)


def test_order_of_dates_does_not_depend_on_the_time_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In Berlin 2:30 does not exist on that day, and is read as 3:30.
    times = {"x": "2024-03-31 02:30", "y": "2024-03-31 03:10", "z": "2024-03-31T04:00+00:00"}
    events = "who,what,when\n" + "".join(f"a,{item},{time}\n" for item, time in times.items())
    for zone in ("UTC", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        clock.tzset()
        assert histories(prepare_events(tmp_path / zone, events), "test") == [["x", "y", "z"]]
    monkeypatch.undo()
    clock.tzset()


def test_wrong_kind_of_tokenizer_raises(tmp_path: Path, wordpiece: Tokenizer) -> None:
    items = prepare_events(tmp_path).tokenizer
    (tmp_path / "a.txt").write_text("a story\n\nanother one\n\nthe last")
    with pytest.raises(UserError, match="every token of the input is unknown"):
        prepare(tmp_path / "a.txt", tmp_path / "text", items)
    others = "who,what,when\n" + "".join(f"a,{n},{n}\n" for n in ("11", "12", "13"))
    with pytest.raises(UserError, match="every token of the input is unknown"):
        prepare_events(tmp_path / "others", others, tokenizer=items)
    with pytest.raises(UserError, match="a wordpiece tokenizer has no items"):
        prepare_events(tmp_path / "other", tokenizer=wordpiece)


def test_plain_text_raises(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a story")
    with pytest.raises(UserError, match="use a table with one event per row"):
        prepare_histories(tmp_path / "a.txt", tmp_path / "data")


def test_a_missing_or_nested_code_raises(tmp_path: Path) -> None:
    for user, message in (("NaN", "line 1 has no user"), ("[7]", "the user is neither text nor")):
        (tmp_path / "a.jsonl").write_text(f'{{"user": {user}, "item": "i", "time": 1}}')
        with pytest.raises(UserError, match=message):
            prepare_histories(tmp_path / "a.jsonl", tmp_path / "data")


def test_a_code_may_be_long(tmp_path: Path) -> None:
    code = "x" * 100_000
    data = prepare_events(tmp_path, f"who,what,when\na,{code},1\na,y,2\na,{code},3\n")
    assert histories(data, "test") == [[code, "y", code]]


def test_movielens(shared_data: Path, tmp_path: Path) -> None:
    ratings = shared_data / "movielens_small" / "ratings.csv.gz"
    with gzip.open(ratings, "rt") as file:
        num_rows = sum(1 for _ in file) - 1
    data = prepare_histories(
        ratings,
        tmp_path / "data",
        user_column="userId",
        item_column="movieId",
        time_column="timestamp",
        min_events=1,
    )
    assert data.report["events"] == num_rows == 79_993
    assert data.split("test").num_documents == data.report["users"] == 500
    assert data.report["unknown_rate"] == 0.0


def test_lone_surrogate_item_raises(tmp_path: Path) -> None:
    """Half of a surrogate pair, which JSON can spell; and a time beyond all numbers."""
    row = '{"user": "u", "item": "%s", "time": %s}\n'
    for item, time, message in (
        (r"i\ud800", "1", "line 1: the item .* holds half of a surrogate pair"),
        ("i", "9" * 400, "line 1: 9+ is not a time"),
    ):
        (tmp_path / "a.jsonl").write_text(row % (item, time))
        with pytest.raises(UserError, match=message):
            prepare_histories(tmp_path / "a.jsonl", tmp_path / "out")
