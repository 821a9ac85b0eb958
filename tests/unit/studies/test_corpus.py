"""The identity of the text of a study changes with the text."""

from pathlib import Path
from typing import Any

import fsspec
import pytest

from bertwright.studies.corpora.corpus import FileCorpus
from hub_server import Hub, dataset_hub, hub, hub_server

__all__ = ["dataset_hub", "hub", "hub_server"]

NEW, OLD = '{"text": "A ship."}\n', '{"text": "A boat."}\n'


def put(location: str, content: str, folder: Path, hub: Hub) -> str:
    """Store a text of one line, and return its name."""
    if location == "hub":
        hub.add("me/text", {"train.jsonl": content}, "dataset")
        return "hf:me/text"
    url = (
        f"memory://studies/{location}.jsonl"
        if location == "storage"
        else str(folder / "text.jsonl")
    )
    file: Any = fsspec.open(url, "w")
    with file as opened:
        opened.write(content)
    return url


@pytest.mark.parametrize("location", ["hub", "storage", "file"])
def test_identity_changes_with_the_content(location: str, tmp_path: Path, dataset_hub: Hub) -> None:
    identities: list[dict[str, object]] = []
    for content in (OLD, NEW):
        corpus = FileCorpus(paths=(put(location, content, tmp_path, dataset_hub),))
        identities.append(corpus.identity())
        assert corpus.identity() == identities[-1]
    assert identities[0] != identities[1]
