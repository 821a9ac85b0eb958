"""A data folder whose manifest or arrays were changed is refused, though its checksums fit."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_text import stories

from bertwright.errors import UserError
from bertwright.text import shards
from bertwright.text.manifest import MANIFEST, PIECE_COUNTS, File, TokenizerIdentity, content_hash
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer

Manifest = dict[str, Any]


@pytest.fixture
def folder(tokenizer_folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps({"text": story, "lang": ("en", "de")[number % 2], "known": KNOWN}) + "\n"
            for number, story in enumerate(stories(40))
        )
    )
    columns = {"language_column": "lang", "annotations": "known", "capitals": True}
    out = tmp_path / "data"
    prepare(tmp_path / "a.jsonl", out, tokenizer_folder, num_workers=1, **columns)
    return out


KNOWN = [{"start": 0, "stop": 3}, {"start": 4, "stop": 9, "label": "person"}]


def seal(folder: Path, manifest: Manifest) -> None:
    """Write a manifest with sizes, checksums and a hash that fit what the folder holds."""
    for name, stated in manifest["files"].items():
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            stated |= {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    files = {name: File(**stated) for name, stated in manifest["files"].items()}
    identity = TokenizerIdentity(**manifest["tokenizer"])
    manifest["hash"] = content_hash(identity, files, tuple(manifest["languages"]))
    (folder / MANIFEST).write_text(json.dumps(manifest))


def array(name: str, dtype: str, change: Callable[[Any], None]) -> Callable[[Path, Manifest], None]:
    """Change an array on the disk."""

    def harm(folder: Path, _: Manifest) -> None:
        values = np.fromfile(folder / name, dtype)
        change(values)
        values.tofile(folder / name)

    return harm


def counts(change: Callable[[Manifest], Any]) -> Callable[[Path, Manifest], None]:
    """Change what the manifest says of the training split."""
    return lambda _, manifest: change(manifest["splits"]["train"])


def stated(change: Callable[[Manifest], Any]) -> Callable[[Path, Manifest], None]:
    """Change the manifest."""
    return lambda _, manifest: change(manifest)


def put(index: int, value: int) -> Callable[[Any], None]:
    return lambda values: values.__setitem__(index, value)


def half_the_documents(folder: Path, manifest: Manifest) -> None:
    starts = np.fromfile(folder / "train.documents.bin", "<i8")
    kept = np.array([*starts[:-1:2], starts[-1]])
    kept.tofile(folder / "train.documents.bin")
    manifest["splits"]["train"]["documents"] = len(kept) - 1
    languages = np.fromfile(folder / "train.languages.bin", "<u2")
    languages[: len(kept) - 1].tofile(folder / "train.languages.bin")


def other_counts(folder: Path, _: Manifest) -> None:
    known = np.load(folder / PIECE_COUNTS)
    np.save(folder / PIECE_COUNTS, known[::-1].copy())


def of_another_size(folder: Path, manifest: Manifest) -> None:
    manifest["tokenizer"]["size"] += 100
    np.save(folder / PIECE_COUNTS, np.pad(np.load(folder / PIECE_COUNTS), (0, 100)))


def objects(folder: Path, _: Manifest) -> None:
    np.save(folder / PIECE_COUNTS, np.array([{}]), allow_pickle=True)


HARMS: dict[str, tuple[Callable[[Path, Manifest], None], str]] = {
    "pieces": (counts(lambda c: c.update(pieces=c["pieces"] + 1)), "by its counts .* has .* bytes"),
    "no pieces": (counts(lambda c: c.update(pieces=0)), "by its counts"),
    "negative": (counts(lambda c: c.update(pieces=-1)), "splits.train.pieces is wrong"),
    "huge": (counts(lambda c: c.update(documents=10**15)), "by its counts"),
    "beyond": (counts(lambda c: c.update(documents=10**30)), "splits.train is wrong"),
    "documents": (counts(lambda c: c.update(documents=1)), "by its counts"),
    "words": (counts(lambda c: c.update(words=c["words"] - 1)), "by its counts"),
    "phrases": (counts(lambda c: c.update(phrases=0)), "by its counts"),
    "fewer documents": (half_the_documents, "do not start where the marks have them"),
    "start": (array("train.documents.bin", "<i8", put(1, 2)), "train.documents.bin is damaged"),
    "end": (array("train.documents.bin", "<i8", put(-1, 9)), "do not follow one another"),
    "order": (array("train.documents.bin", "<i8", put(2, 0)), "do not follow one another"),
    "sentence": (array("train.sentences.bin", "<i8", put(3, 1 << 40)), "train.sentences.bin"),
    "ids": (array("train.pieces.bin", "<u2", put(5, 60_000)), "a piece is not below"),
    "held-out ids": (array("heldout.pieces.bin", "<u2", put(0, 60_000)), "heldout.pieces.bin"),
    "marks": (array("train.marks.bin", "u1", put(7, 7)), "where the marks have them"),
    "rank": (array("train.words_before.bin", "<i8", put(1, 0)), "train.words_before.bin"),
    "language": (array("train.languages.bin", "<u2", put(0, 2)), "a value lies outside the text"),
    "phrase": (array("train.phrase_stops.bin", "<i8", put(0, -1)), "train.phrase_stops.bin"),
    "entity": (array("train.entity_starts.bin", "<i8", put(-1, 1 << 50)), "train.entity_starts"),
    "no files": (stated(lambda m: m.update(files={})), "its files lack"),
    "other file": (
        stated(lambda m: m["files"].update({"../../x": m["files"]["train.marks.bin"]})),
        r"its files hold '\.\./\.\./x'",
    ),
    "split": (stated(lambda m: m["splits"].update(test=m["splits"]["train"])), "lack 'test\\."),
    "no train": (stated(lambda m: m["splits"].pop("train")), "it has no split train"),
    "dtype": (stated(lambda m: m.update(piece_type="uint32")), "by its counts|not uint16"),
    "capitals": (stated(lambda m: m.update(capitals=False)), "its files hold"),
    "languages": (stated(lambda m: m.update(languages=["en"])), "a value lies outside the text"),
    "tokenizer": (stated(lambda m: m["tokenizer"].update(hash="0")), "tokenizer has another hash"),
    "tokenizer kind": (stated(lambda m: m["tokenizer"].update(kind="words")), "another kind"),
    "tokenizer size": (of_another_size, "the tokenizer has another size"),
    "piece counts": (other_counts, "piece_counts.npy is damaged"),
    "pickle": (objects, "piece_counts.npy is damaged .it is no NumPy array"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_contradicts_itself_is_refused(harm: str, folder: Path) -> None:
    Data.open(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    change, message = HARMS[harm]
    change(folder, manifest)
    if harm in ("negative", "beyond"):
        (folder / MANIFEST).write_text(json.dumps(manifest))
    else:
        seal(folder, manifest)
    with pytest.raises(UserError, match=message):
        Data.open(folder)


@pytest.mark.parametrize("harm", ["pieces", "end", "order", "no files", "tokenizer", "dtype"])
def test_large_data_are_refused_by_what_is_quick_to_see(
    harm: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "CHECKED_AT_OPENING", 0)
    Data.open(folder).check()
    manifest = json.loads((folder / MANIFEST).read_text())
    change, message = HARMS[harm]
    change(folder, manifest)
    seal(folder, manifest)
    with pytest.raises(UserError, match=message):
        Data.open(folder)


def test_another_tokenizer_is_refused(folder: Path, trained: dict[str, Tokenizer]) -> None:
    trained["unigram"].save(folder)
    seal(folder, json.loads((folder / MANIFEST).read_text()))
    with pytest.raises(UserError, match="the tokenizer has another"):
        Data.open(folder)
