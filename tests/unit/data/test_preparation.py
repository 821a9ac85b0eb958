"""Preparation is atomic and deterministic."""

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards import writer as shard_writing
from bertwright.data.shards.dataset import Dataset, Split
from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from small_text import stories

ENDLESS = """
import signal, sys
import bertwright.data.preparation as preparation
from bertwright.data.document import Document

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it

def documents(*_):
    number = 0
    while True:
        number += 1
        yield Document(f"Document {number}. It is one of many.")

preparation.read_documents = documents
preparation.prepare(sys.argv[1], sys.argv[2], sys.argv[3], num_workers=2)
"""


def document_tokens(split: Split) -> list[list[int]]:
    token_ids = split.token_ids(0, split.num_tokens)
    return [part.tolist() for part in np.split(token_ids, split.document_starts[1:-1])]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(stories(30)))
    (folder / "b.txt").write_text("\n\n".join([*stories(5), "", "One more. And more."]))
    return folder


def test_data_set_holds_the_tokens_of_the_tokenizer(
    text: Path, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    data = prepare(text, tmp_path / "data", tokenizer, heldout=0.2, num_workers=1)
    documents = [*document_tokens(data.split("train")), *document_tokens(data.split("heldout"))]
    expected = [tokenizer.encode(story) for story in [*stories(30), "One more. And more."]]
    assert sorted(documents) == sorted(expected)
    assert data.split("heldout").num_documents > 1
    assert data.tokenizer.hash == tokenizer.hash
    assert Dataset.open(tmp_path / "data").manifest == data.manifest


def test_report(text: Path, tmp_path: Path, wordpiece: Tokenizer) -> None:
    report = prepare(text, tmp_path / "data", wordpiece, num_workers=1).report
    documents = [*stories(30), "One more. And more."]
    token_ids = [wordpiece.encode(document) for document in documents]
    num_bytes = sum(len(document.encode()) for document in documents)
    assert report["documents"] == 31
    assert report["duplicates"] == 5
    assert report["tokens"] == sum(map(len, token_ids))
    assert report["bytes_per_token"] == num_bytes / report["tokens"]
    assert report["longest_document"] == max(map(len, token_ids))
    assert report["unknown_rate"] == sum(ids.count(1) for ids in token_ids) / report["tokens"]
    assert report["sentences"] > 90
    assert report["words"] < report["tokens"]
    assert 3 < report["unigram_entropy"] < 7
    assert report["files"] == 2
    assert report["special_tokens_in_text"] == 0


def test_special_names_in_the_text_are_counted(tmp_path: Path, wordpiece: Tokenizer) -> None:
    (tmp_path / "a.txt").write_text("BERT knows [MASK] and [SEP].\n\nAnother text.\n\nA third.")
    report = prepare(tmp_path / "a.txt", tmp_path / "data", wordpiece, num_workers=1).report
    assert report["special_tokens_in_text"] == 2


def test_result_does_not_depend_on_the_number_of_workers(
    text: Path, tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertwright.data.preparation.CHUNK_CHARACTERS", 500)
    one, three = (
        prepare(text, tmp_path / str(workers), wordpiece, num_workers=workers) for workers in (1, 3)
    )
    assert one.manifest == three.manifest


def test_split_does_not_depend_on_the_order_of_files(
    text: Path, tmp_path: Path, wordpiece: Tokenizer
) -> None:
    files = [text / "b.txt", text / "a.txt"]
    forward = prepare(files, tmp_path / "there", wordpiece, num_workers=1)
    backward = prepare(files[::-1], tmp_path / "back", wordpiece, num_workers=1)
    for name in ("train", "heldout"):
        documents = [sorted(document_tokens(data.split(name))) for data in (forward, backward)]
        assert documents[0] == documents[1]


def test_near_duplicates_option(tmp_path: Path, wordpiece: Tokenizer) -> None:
    long = " ".join(stories(4)).replace("\n", " ")
    (tmp_path / "a.txt").write_text(f"{long}\n\n{long} The end.\n\nSomething else. Entirely.")
    plain, near = (
        prepare(
            tmp_path / "a.txt",
            tmp_path / name,
            wordpiece,
            heldout=0.0,
            near_duplicates=name == "near",
            num_workers=1,
        )
        for name in ("plain", "near")
    )
    assert (plain.report["documents"], near.report["documents"]) == (3, 2)
    assert near.report["near_duplicates"] == 1


def test_single_document_is_split(tmp_path: Path, wordpiece: Tokenizer) -> None:
    (tmp_path / "book.txt").write_text("A story. It goes on. And on. It ends.")
    data = prepare(tmp_path / "book.txt", tmp_path / "data", wordpiece, num_workers=1)
    assert data.split("train").num_sentences == 3
    assert data.split("heldout").num_sentences == 1


def test_no_held_out_split(text: Path, tmp_path: Path, wordpiece: Tokenizer) -> None:
    data = prepare(text, tmp_path / "data", wordpiece, heldout=0, num_workers=1)
    assert list(data.manifest.splits) == ["train"]


@pytest.mark.parametrize("content", [b"", b"\n \n\n", b"\x01\x02 \x03"])
def test_empty_text_raises(content: bytes, tmp_path: Path, wordpiece: Tokenizer) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=r"no text|single sentence"):
        prepare(tmp_path / "a.txt", tmp_path / "data", wordpiece, num_workers=1)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_invalid_heldout_fraction_raises(fraction: float, text: Path, wordpiece: Tokenizer) -> None:
    with pytest.raises(UserError, match="held-out fraction"):
        prepare(text, text / "data", wordpiece, heldout=fraction)


def test_existing_output_is_not_overwritten(
    text: Path, tmp_path: Path, tokenizer_folder: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("")
    with pytest.raises(UserError, match="already exists"):
        prepare(text, tmp_path / "data", tokenizer_folder)


def test_invalid_file_leaves_no_output(text: Path, tmp_path: Path, tokenizer_folder: Path) -> None:
    (text / "c.txt").write_bytes(bytes(range(256)) * 10)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"c\.txt is a binary file"):
        prepare(text, tmp_path / "data", tokenizer_folder, num_workers=2)
    assert sorted(tmp_path.iterdir()) == before


def test_full_disk_raises_one_sentence(
    text: Path, tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shard_writing._ArrayFile, "append", full)
    with pytest.raises(UserError, match="No space left on device: free some space"):
        prepare(text, tmp_path / "data", wordpiece, num_workers=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]


def test_file_size_limit_raises_one_sentence(
    text: Path, tmp_path: Path, tokenizer_folder: Path
) -> None:
    command = ["-m", "bertwright", "prepare", text, "-o", tmp_path / "d", "--tokenizer"]
    result = subprocess.run(
        [sys.executable, *command, tokenizer_folder],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "File too large" in result.stderr
    assert not (tmp_path / "d").exists()


def test_names_of_files_do_not_depend_on_the_locale(tmp_path: Path, tokenizer_folder: Path) -> None:
    (tmp_path / "tëxt.txt").write_text("A story. It goes on.")
    code = (
        "import sys; from bertwright.data.preparation import prepare; from pathlib import Path\n"
        "[text] = Path(sys.argv[1]).glob('t*t.txt')\n"
        "print(ascii(prepare(text, *sys.argv[2:4], num_workers=1).manifest.sources[0]['name']))"
    )
    ascii_locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-X", "utf8=0", "-c", code, tmp_path]
    result = subprocess.run(
        [*command, tmp_path / "data", tokenizer_folder],
        capture_output=True,
        text=True,
        env=os.environ | ascii_locale,
    )
    assert result.returncode == 0, result.stderr
    assert "t\\xebxt.txt" in result.stdout
    assert "tëxt.txt" in str(Dataset.open(tmp_path / "data").manifest.sources)


def test_kill_leaves_no_data_set_and_no_workers(tmp_path: Path, tokenizer_folder: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    arguments = [tmp_path / "a.txt", tmp_path / "data", tokenizer_folder]
    running = subprocess.Popen([sys.executable, "-c", ENDLESS, *arguments])
    while not list(tmp_path.glob(".data.unfinished-*/train.tokens.bin")) or not child_processes(
        running.pid
    ):
        time.sleep(0.02)
        assert running.poll() is None
    workers = child_processes(running.pid)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "data").exists()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{worker}/stat").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def child_processes(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task")
    files = [task / "children" for task in tasks.iterdir()] if tasks.exists() else []
    return [int(child) for file in files for child in file.read_text().split()]


def test_interrupt_leaves_no_output(tmp_path: Path, tokenizer_folder: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    arguments = [tmp_path / "a.txt", tmp_path / "data", tokenizer_folder]
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, *arguments], stderr=subprocess.DEVNULL
    ) as running:
        while not child_processes(running.pid):
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(60) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_memory_does_not_grow_with_the_text(tmp_path: Path, tokenizer_folder: Path) -> None:
    peaks: list[int] = []
    for megabytes in (1, 6):
        lines = (f"Number {i} of the ships waits. " * 20 for i in range(megabytes * 1700))
        (tmp_path / "a.txt").write_text("\n\n".join(lines))
        code = (
            "import resource, sys; from bertwright.data.preparation import prepare\n"
            "prepare(*sys.argv[1:4], num_workers=1)\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        arguments = [tmp_path / "a.txt", tmp_path / f"data{megabytes}", tokenizer_folder]
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
        )
        peaks.append(int(result.stdout))
    assert peaks[1] < 1.2 * peaks[0]


def test_heldout_fraction_of_a_text_without_blank_lines(tmp_path: Path) -> None:
    """Documents are split by length only, so they are few and long."""
    lines = [f"This is line {n} of the text, which goes on and on." for n in range(29_000)]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    tokenizer = train_tokenizer(lines[:100], WordPieceConfig(vocab_size=100))
    data = prepare(tmp_path / "text.txt", tmp_path / "data", tokenizer, num_workers=1)
    heldout, train = (data.split(name).num_tokens for name in ("heldout", "train"))
    assert heldout / (heldout + train) == pytest.approx(0.05, rel=0.1)
    assert data.report["heldout_achieved"] == pytest.approx(heldout / (heldout + train))
    assert data.report["heldout_requested"] == 0.05
