"""Pickling of models as the files of their folder: recipe, tokenizer, task and safetensors.

Nothing that PyTorch pickles is in the pickle of an estimator, so it opens with another version of
PyTorch or on another device, and needs neither the folder that the encoder came from nor the folder
that it was saved in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar, cast

from sklearn.base import BaseEstimator

from bertwright.core.config import InferencePrecision
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel


@dataclass(frozen=True)
class SavedModel:
    """A model as the files of its folder, by name, and the precision that it computes with."""

    files: Mapping[str, bytes]
    precision: InferencePrecision

    @staticmethod
    def from_model(model: TextModel) -> "SavedModel":
        """Return the files of a model."""
        with TemporaryDirectory() as folder:
            model.save(folder)
            files = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
        return SavedModel(files, model.precision)

    def load(self) -> TextModel:
        """Return the model."""
        with TemporaryDirectory() as folder:
            for name, content in self.files.items():
                (Path(folder) / name).write_bytes(content)
            return load(folder, self.precision)


ModelType = TypeVar("ModelType", bound=TextModel)


class ModelEstimator(BaseEstimator, Generic[ModelType]):
    """An estimator that is pickled with its fitted ``model_`` as a :class:`SavedModel`."""

    model_: ModelType

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast(Mapping[str, Any], super().__getstate__()))
        if "model_" in state:
            state["model_"] = SavedModel.from_model(state["model_"])
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        saved = state.get("model_")
        model = {"model_": saved.load()} if isinstance(saved, SavedModel) else {}
        super().__setstate__({**state, **model})
