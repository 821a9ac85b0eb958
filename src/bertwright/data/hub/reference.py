"""Names of repositories on the Hub."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertwright.core.errors import UserError

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"
_MODEL = re.compile(rf"({_PART}/{_PART})(?:@([^\s@:]+))?")
_DATASET = re.compile(rf"hf:({_PART}/{_PART})(?:@([^\s@:/]+))?(?:[:/]({_PART}))?")

DATASET_PREFIX = "hf:"
"""Prefix of data sets on the Hub, which distinguishes them from files."""


@dataclass(frozen=True)
class HubReference:
    """A model or data set on the Hub: ``owner/name``, and optionally a revision."""

    repository: str
    revision: str | None = None
    kind: Literal["model", "dataset"] = "model"

    @staticmethod
    def parse(text: str | Path) -> "HubReference | None":
        """Return the model that ``owner/name[@revision]`` names; None for any other text."""
        match = _MODEL.fullmatch(str(text))
        return None if match is None else HubReference(match[1], match[2])

    @staticmethod
    def of_snapshot(folder: Path) -> "HubReference | None":
        """Return the model and commit of a folder of the Hub's cache; None for other folders."""
        repository = folder.parent.parent.name
        if folder.parent.name != "snapshots" or not repository.startswith("models--"):
            return None
        return HubReference(repository.removeprefix("models--").replace("--", "/", 1), folder.name)

    @property
    def page(self) -> str:
        """Return the address of the repository's page."""
        from huggingface_hub import constants

        return f"{constants.ENDPOINT}/{'datasets/' * (self.kind == 'dataset')}{self.repository}"

    def __str__(self) -> str:
        return self.repository + ("" if self.revision is None else f"@{self.revision}")


@dataclass(frozen=True)
class HubDataset:
    """A configuration of a data set on the Hub: ``hf:owner/name[@revision][:config]``.

    The configuration may also be the third part of the path: ``hf:nyu-mll/glue/sst2``.
    """

    reference: HubReference
    config: str | None = None

    @staticmethod
    def is_named(text: str | Path) -> bool:
        """Return whether a text names a data set on the Hub."""
        return str(text).startswith(DATASET_PREFIX)

    @staticmethod
    def parse(text: str | Path) -> "HubDataset":
        """Parse a name; raise UserError for an incomplete one."""
        match = _DATASET.fullmatch(str(text))
        if match is None:
            raise UserError(
                f"{text} is not the name of a data set on the Hub: write hf:owner/name, "
                f"hf:owner/name:config or hf:owner/name@revision:config"
            )
        return HubDataset(HubReference(match[1], match[2], "dataset"), match[3])

    def __str__(self) -> str:
        return f"{DATASET_PREFIX}{self.reference}" + (f":{self.config}" if self.config else "")


def names_model(text: str) -> bool:
    """Return whether a text names a model, as a folder or on the Hub, and not a YAML file."""
    path = Path(text)
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path.is_dir()
    return HubReference.parse(text) is not None


def describe_folder(folder: Path) -> str:
    """Return where the model of a folder is from: its name, or its repository and commit."""
    return str(HubReference.of_snapshot(folder) or folder.resolve().name)
