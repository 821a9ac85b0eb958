"""Inconsistent data folders are rejected, even with matching checksums."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards import dataset as shards
from bertwright.data.shards.dataset import Dataset
from bertwright.data.shards.manifest import (
    MANIFEST,
    TOKEN_COUNTS,
    FileInfo,
    TokenizerInfo,
    dataset_hash,
)
from bertwright.data.tokenization.tokenizer import Tokenizer
from small_text import stories

Manifest = dict[str, Any]


@pytest.fixture
def folder(tokenizer_folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps(
                {"text": story, "lang": ("en", "de")[number % 2], "annotations": ANNOTATIONS}
            )
            + "\n"
            for number, story in enumerate(stories(40))
        )
    )
    columns = {"language_column": "lang", "annotations_column": "annotations", "capitals": True}
    out = tmp_path / "data"
    prepare(tmp_path / "a.jsonl", out, tokenizer_folder, num_workers=1, **columns)
    return out


ANNOTATIONS = [{"start": 0, "stop": 3}, {"start": 4, "stop": 9, "label": "person"}]


def update_checksums(folder: Path, manifest: Manifest) -> None:
    """Write a manifest with sizes, checksums and a hash of the folder's files."""
    for name, change_manifest in manifest["files"].items():
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            change_manifest |= {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    files = {
        name: FileInfo(**change_manifest) for name, change_manifest in manifest["files"].items()
    }
    identity = TokenizerInfo(**manifest["tokenizer"])
    manifest["hash"] = dataset_hash(identity, files, tuple(manifest["languages"]))
    (folder / MANIFEST).write_text(json.dumps(manifest))


def change_array(
    name: str, dtype: str, change: Callable[[Any], None]
) -> Callable[[Path, Manifest], None]:
    """Change an array on disk."""

    def damage(folder: Path, _: Manifest) -> None:
        values = np.fromfile(folder / name, dtype)
        change(values)
        values.tofile(folder / name)

    return damage


def change_counts(change: Callable[[Manifest], Any]) -> Callable[[Path, Manifest], None]:
    """Change the training split's counts in the manifest."""
    return lambda _, manifest: change(manifest["splits"]["train"])


def change_manifest(change: Callable[[Manifest], Any]) -> Callable[[Path, Manifest], None]:
    """Change the manifest."""
    return lambda _, manifest: change(manifest)


def set_item(index: int, value: int) -> Callable[[Any], None]:
    return lambda values: values.__setitem__(index, value)


def drop_every_other_document(folder: Path, manifest: Manifest) -> None:
    starts = np.fromfile(folder / "train.documents.bin", "<i8")
    kept = np.array([*starts[:-1:2], starts[-1]])
    kept.tofile(folder / "train.documents.bin")
    manifest["splits"]["train"]["documents"] = len(kept) - 1
    languages = np.fromfile(folder / "train.languages.bin", "<u2")
    languages[: len(kept) - 1].tofile(folder / "train.languages.bin")


def reverse_token_counts(folder: Path, _: Manifest) -> None:
    token_counts = np.load(folder / TOKEN_COUNTS)
    np.save(folder / TOKEN_COUNTS, token_counts[::-1].copy())


def resize_tokenizer(folder: Path, manifest: Manifest) -> None:
    manifest["tokenizer"]["vocab_size"] += 100
    np.save(folder / TOKEN_COUNTS, np.pad(np.load(folder / TOKEN_COUNTS), (0, 100)))


def store_objects(folder: Path, _: Manifest) -> None:
    np.save(folder / TOKEN_COUNTS, np.array([{}]), allow_pickle=True)


DAMAGES: dict[str, tuple[Callable[[Path, Manifest], None], str]] = {
    "more tokens": (
        change_counts(lambda c: c.update(tokens=c["tokens"] + 1)),
        "by its counts .* has .* bytes",
    ),
    "no tokens": (change_counts(lambda c: c.update(tokens=0)), "by its counts"),
    "negative": (change_counts(lambda c: c.update(tokens=-1)), "splits.train.tokens is wrong"),
    "huge": (change_counts(lambda c: c.update(documents=10**15)), "by its counts"),
    "beyond": (change_counts(lambda c: c.update(documents=10**30)), "splits.train is wrong"),
    "documents": (change_counts(lambda c: c.update(documents=1)), "by its counts"),
    "words": (change_counts(lambda c: c.update(words=c["words"] - 1)), "by its counts"),
    "phrases": (change_counts(lambda c: c.update(phrases=0)), "by its counts"),
    "fewer documents": (drop_every_other_document, "they do not match the boundaries"),
    "start": (
        change_array("train.documents.bin", "<i8", set_item(1, 2)),
        "train.documents.bin is damaged",
    ),
    "end": (change_array("train.documents.bin", "<i8", set_item(-1, 9)), "are not in order"),
    "order": (change_array("train.documents.bin", "<i8", set_item(2, 0)), "are not in order"),
    "sentence": (
        change_array("train.sentences.bin", "<i8", set_item(3, 1 << 40)),
        "train.sentences.bin",
    ),
    "ids": (
        change_array("train.tokens.bin", "<u2", set_item(5, 60_000)),
        "a token id is not below",
    ),
    "held-out ids": (
        change_array("heldout.tokens.bin", "<u2", set_item(0, 60_000)),
        "heldout.tokens.bin",
    ),
    "boundaries": (
        change_array("train.boundaries.bin", "u1", set_item(7, 7)),
        "they do not match the boundaries",
    ),
    "rank": (
        change_array("train.words_before.bin", "<i8", set_item(1, 0)),
        "train.words_before.bin",
    ),
    "language": (
        change_array("train.languages.bin", "<u2", set_item(0, 2)),
        "a value lies outside the text",
    ),
    "phrase": (
        change_array("train.phrase_stops.bin", "<i8", set_item(0, -1)),
        "train.phrase_stops.bin",
    ),
    "entity": (
        change_array("train.entity_starts.bin", "<i8", set_item(-1, 1 << 50)),
        "train.entity_starts",
    ),
    "no files": (change_manifest(lambda m: m.update(files={})), "its files lack"),
    "other file": (
        change_manifest(
            lambda m: m["files"].update({"../../x": m["files"]["train.boundaries.bin"]})
        ),
        r"its files should not hold '\.\./\.\./x'",
    ),
    "split": (
        change_manifest(lambda m: m["splits"].update(test=m["splits"]["train"])),
        "lack 'test\\.",
    ),
    "no train": (change_manifest(lambda m: m["splits"].pop("train")), "it has no split train"),
    "dtype": (
        change_manifest(lambda m: m.update(token_dtype="uint32")),
        "by its counts|not uint16",
    ),
    "capitals": (
        change_manifest(lambda m: m.update(has_capitals=False)),
        "its files should not hold",
    ),
    "languages": (
        change_manifest(lambda m: m.update(languages=["en"])),
        "a value lies outside the text",
    ),
    "tokenizer": (
        change_manifest(lambda m: m["tokenizer"].update(hash="0")),
        "tokenizer has another hash",
    ),
    "tokenizer kind": (
        change_manifest(lambda m: m["tokenizer"].update(kind="words")),
        "another kind",
    ),
    "tokenizer size": (resize_tokenizer, "the tokenizer has another vocab_size"),
    "token counts": (reverse_token_counts, "token_counts.npy is damaged"),
    "pickle": (store_objects, "token_counts.npy is damaged .it is not a NumPy array"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_inconsistent_data_raises(damage: str, folder: Path) -> None:
    Dataset.open(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    change, message = DAMAGES[damage]
    change(folder, manifest)
    if damage in ("negative", "beyond"):
        (folder / MANIFEST).write_text(json.dumps(manifest))
    else:
        update_checksums(folder, manifest)
    with pytest.raises(UserError, match=message):
        Dataset.open(folder)


@pytest.mark.parametrize(
    "damage", ["more tokens", "end", "order", "no files", "tokenizer", "dtype"]
)
def test_quick_checks_of_large_data(
    damage: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MAX_BYTES_CHECKED_ON_OPEN", 0)
    Dataset.open(folder).check()
    manifest = json.loads((folder / MANIFEST).read_text())
    change, message = DAMAGES[damage]
    change(folder, manifest)
    update_checksums(folder, manifest)
    with pytest.raises(UserError, match=message):
        Dataset.open(folder)


def test_other_tokenizer_raises(folder: Path, trained: dict[str, Tokenizer]) -> None:
    trained["unigram"].save(folder)
    update_checksums(folder, json.loads((folder / MANIFEST).read_text()))
    with pytest.raises(UserError, match="the tokenizer has another"):
        Dataset.open(folder)
