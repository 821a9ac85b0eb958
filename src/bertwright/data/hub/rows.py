"""Rows of data sets on the Hub, streamed in bounded memory and in the order of the files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertwright.core.cache_folder import read_cache, update_cache
from bertwright.core.errors import UserError
from bertwright.core.messages import first_line
from bertwright.core.optional_dependencies import require_library
from bertwright.data.hub.errors import HUB_EXTRA, explain_hub_errors
from bertwright.data.hub.reference import HubDataset

COMMITS_FILE = "hub-datasets.json"
"""Cache file of the last known commit of each data set, for work without a network."""


@dataclass(frozen=True)
class RowStream:
    """The rows of one split of a data set at one commit."""

    dataset: HubDataset
    split: str
    commit: str
    columns: tuple[str, ...]
    class_names: Mapping[str, Sequence[str]]
    """Names of the classes of every column that holds class numbers."""
    _rows: Any

    def read(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of these columns, row by row.

        Errors: UserError if the connection breaks for good, or a file is damaged.
        """
        rows = self._rows.select_columns(list(columns))
        with explain_hub_errors(self.dataset.reference):
            try:
                yield from rows
            except ValueError as error:  # also pyarrow's
                raise UserError(f"{self.dataset} cannot be read: {first_line(error)}") from error


def find_commit(dataset: HubDataset) -> str:
    """Return the current commit of a data set; with HF_HUB_OFFLINE, the last known one.

    Errors: UserError if there is no such data set, or it cannot be reached.
    """
    require_library("datasets", HUB_EXTRA)
    from huggingface_hub import HfApi, constants

    reference = dataset.reference
    if constants.HF_HUB_OFFLINE and (known := read_cache(COMMITS_FILE).get(str(reference))):
        return known
    with explain_hub_errors(reference):
        info = HfApi().dataset_info(reference.repository, revision=reference.revision)
    commit = str(info.sha)
    update_cache(COMMITS_FILE, {str(reference): commit})
    return commit


def open_splits(dataset: HubDataset, commit: str) -> dict[str, RowStream]:
    """Return the splits of a data set by name.

    Errors: UserError for an unknown or missing configuration, a gated data set, and one that is a
    script.
    """
    import datasets
    from datasets import exceptions

    name = dataset.reference.repository
    with explain_hub_errors(dataset.reference):
        try:
            splits: Any = datasets.load_dataset(
                name, dataset.config, revision=commit, streaming=True
            )
        except exceptions.DatasetNotFoundError as error:
            raise UserError(
                f"{dataset} is gated: accept its terms at {dataset.reference.page}, then run "
                f"'hf auth login'"
            ) from error
        except (RuntimeError, FileNotFoundError) as error:
            raise UserError(
                f"{dataset} is no data set that can be read: {first_line(error)}"
            ) from error
        except ValueError as error:
            raise _configuration_error(dataset, commit, error) from error
    return {split: _describe(dataset, split, commit, rows) for split, rows in splits.items()}


def open_split(dataset: HubDataset, split: str) -> RowStream:
    """Return the rows of a split; UserError that lists the splits if there is none of this name."""
    splits = open_splits(dataset, find_commit(dataset))
    if split not in splits:
        raise UserError(
            f"{dataset} has no split {split!r}: choose one with --split: {', '.join(splits)}"
        )
    return splits[split]


def _describe(dataset: HubDataset, split: str, commit: str, rows: Any) -> RowStream:
    import datasets

    if rows.features is None:  # known only from the first rows
        with explain_hub_errors(dataset.reference):
            rows = rows._resolve_features()
    features: Mapping[str, Any] = rows.features or {}
    class_names = {
        name: list(feature.names)
        for name, feature in features.items()
        if isinstance(feature, datasets.ClassLabel)
    }
    return RowStream(dataset, split, commit, tuple(features), class_names, rows)


def _configuration_error(dataset: HubDataset, commit: str, error: ValueError) -> UserError:
    """Return an error that lists the configurations, if a wrong or missing one is the cause."""
    import datasets

    name = dataset.reference.repository
    configs = datasets.get_dataset_config_names(name, revision=commit)
    if dataset.config in configs or len(configs) < 2:
        return UserError(f"{dataset} cannot be read: {first_line(error)}")
    return UserError(
        f"{dataset}: choose one of its configurations, such as hf:{name}:{configs[0]}: "
        f"{', '.join(configs)}"
    )
