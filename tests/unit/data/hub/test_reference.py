"""Names on the Hub are distinguished from paths."""

from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.hub.reference import (
    HubDataset,
    HubReference,
    describe_folder,
    names_model,
)


@pytest.mark.parametrize(
    ("text", "repository", "revision"),
    [
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased", None),
        ("me/model@main", "me/model", "main"),
        ("me/model.v2@refs/pr/3", "me/model.v2", "refs/pr/3"),
    ],
)
def test_a_model_is_owner_and_name(text: str, repository: str, revision: str | None) -> None:
    reference = HubReference.parse(text)
    assert reference == HubReference(repository, revision)
    assert str(reference) == text


@pytest.mark.parametrize(
    "path", ["model", "/me/model", "./me/model", "../me", "a/b/c", "me/model@", "hf:me/data", "-"]
)
def test_other_paths_are_no_names(path: str) -> None:
    assert HubReference.parse(path) is None


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("hf:me/text", HubDataset(HubReference("me/text", None, "dataset"))),
        ("hf:me/glue:sst2", HubDataset(HubReference("me/glue", None, "dataset"), "sst2")),
        ("hf:me/glue/sst2", HubDataset(HubReference("me/glue", None, "dataset"), "sst2")),
        ("hf:me/glue@v1:sst2", HubDataset(HubReference("me/glue", "v1", "dataset"), "sst2")),
    ],
)
def test_a_data_set_may_have_a_revision_and_a_configuration(text: str, parsed: HubDataset) -> None:
    assert HubDataset.parse(text) == parsed
    assert HubDataset.parse(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["hf:", "hf:text", "hf:me/glue/sst2/train", "hf:me/glue:a:b"])
def test_incomplete_names_of_data_sets_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="write hf:owner/name"):
        HubDataset.parse(text)


def test_a_folder_of_the_cache_is_described_by_repository_and_commit() -> None:
    commit = "0123456789" * 4
    folder = Path(f"/cache/models--me--my--model/snapshots/{commit}")
    assert describe_folder(folder) == f"me/my--model@{commit}"
    assert describe_folder(Path("runs/encoder")) == "encoder"


def test_a_missing_yaml_file_is_no_model(tmp_path: Path) -> None:
    assert names_model("me/model")
    assert names_model(str(tmp_path))
    assert not names_model("recipes/student.yaml")
    assert not names_model("bert-tiny")
