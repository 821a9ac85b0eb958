"""Model and data folders with a random change to a field or to bytes."""

import json
import random
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import yaml
from pydantic import ValidationError
from safetensors.torch import load_file, save_file

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.data.shards.manifest import MANIFEST, FileInfo, TokenizerInfo, dataset_hash
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.interop.loading import load
from bertwright.models import Model
from bertwright.recipes import Recipe
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.training.clock import Progress
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.pretraining_batches import PretrainingBatches
from fuzz.case import Case, Kind
from fuzz.junk import as_json, as_yaml, changed, changed_bytes, changed_text
from fuzz.recipes import SYSTEMS
from fuzz.workspace import TINY, Workspace

DTYPES = (torch.int64, torch.float16, torch.bfloat16, torch.bool, torch.float64)
LINES = ["The red bird sees a tree.", ""]


def _restore(original: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)


def _files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that are read when it is loaded."""
    return [file for file in sorted(folder.iterdir()) if file.name != "README.md"]


def _change_file(rng: random.Random, file: Path) -> str:
    """Change a file; return a description of the change."""
    if file.suffix == ".safetensors" and rng.random() < 0.6:
        return _change_weights(rng, file)
    if file.suffix not in (".json", ".yaml", ".txt", ".jsonl"):
        file.write_bytes(changed_bytes(rng, file.read_bytes()))
        return f"{file.name}: bytes"
    text = file.read_text(encoding="utf-8")
    if rng.random() < 0.25:
        text = changed_text(rng, text)
    elif file.suffix == ".json":
        text = as_json(changed(rng, json.loads(text)))
    elif file.suffix == ".yaml":
        text = as_yaml(changed(rng, yaml.safe_load(text)))
    else:
        text = changed_text(rng, text)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return f"{file.name}: {text}"


def _change_weights(rng: random.Random, file: Path) -> str:
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    change = rng.randrange(5)
    if change == 0:
        del tensors[name]
    elif change == 1:
        tensors[f"{name}.more"] = tensor.clone()
    elif change == 2 and tensor.numel() and tensor.is_floating_point():
        tensor.view(-1)[rng.randrange(tensor.numel())] = rng.choice((float("nan"), float("inf")))
    elif change == 3:
        tensors[name] = tensor.to(rng.choice(DTYPES))
    else:
        tensors[name] = tensor.flatten()[: rng.randrange(tensor.numel() + 1)].contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
    return f"{file.name}: {name} ({change})"


class ModelFolders(Kind):
    """Model folders, pre-trained and fine-tuned."""

    name: ClassVar[str] = "model folders"
    weight: ClassVar[float] = 6

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._original, self._copy = (workspace.model, workspace.tuned), scratch / "model"

    def case(self, rng: random.Random) -> Case:
        original = rng.choice(self._original)
        _restore(original, self._copy)
        files = _files_of(self._copy)
        description = _change_file(rng, rng.choice(files))
        return Case(f"{original.name}/{description}", lambda: _use_model(self._copy))


class StockFolders(Kind):
    """Hugging Face folders of several families."""

    name: ClassVar[str] = "stock folders"
    weight: ClassVar[float] = 6

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._folder, self._copy = workspace.folder / "stock", scratch / "stock"
        tokenizer = Tokenizer.load(workspace.tokenizer)
        for system in SYSTEMS:
            with suppress(UserError):
                recipe = Recipe.load(f"{system}-tiny", *TINY[1:3], "encoder.width=32")
                model = Model.build(recipe, tokenizer.vocab_size, tokenizer)
                export_huggingface(model, tokenizer, self._folder / system)
        self._systems = sorted(path.name for path in self._folder.iterdir())

    def case(self, rng: random.Random) -> Case:
        system = rng.choice(self._systems)
        _restore(self._folder / system, self._copy)
        files = _files_of(self._copy)
        files += [self._copy / "config.json"] * 4
        description = _change_file(rng, rng.choice(files))
        return Case(f"{system}/{description}", lambda: import_huggingface(self._copy))


class DataFolders(Kind):
    """Prepared data folders with a change and matching checksums."""

    name: ClassVar[str] = "data folders"
    weight: ClassVar[float] = 6

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._original, self._copy = workspace.data, scratch / "prepared"
        self._recipe = Recipe.load("bert-tiny", *TINY, "text.tokenizer.vocab_size=120")

    def case(self, rng: random.Random) -> Case:
        _restore(self._original, self._copy)
        manifest = json.loads((self._copy / MANIFEST).read_text())
        change = rng.randrange(4)
        if change == 0:
            manifest = changed(rng, manifest)
            description = as_json(manifest)
        elif change == 1:
            file = self._copy / rng.choice(sorted(manifest["files"]))
            description = _change_file(rng, file)
        else:
            file = self._copy / rng.choice(sorted(manifest["files"]))
            content = bytearray(file.read_bytes())
            for _ in range(rng.randint(1, 3)):
                if content:
                    content[rng.randrange(len(content))] = rng.randrange(256)
            file.write_bytes(content)
            description = f"{file.name}: some bytes"
        if change == 0 and rng.random() < 0.3:
            (self._copy / MANIFEST).write_text(as_json(manifest))
        else:
            self._seal(manifest)
        return Case(f"data/{description}", self._use)

    def _seal(self, manifest: Any) -> None:
        """Write a manifest with matching sizes, checksums and hash, as far as it is valid."""
        with suppress(
            KeyError,
            TypeError,
            AttributeError,
            ValidationError,
            ValueError,
            OSError,
            RecursionError,
        ):
            for name, stated in manifest["files"].items():
                content = (self._copy / name).read_bytes()
                stated |= {"bytes": len(content), "sha256": sha256(content).hexdigest()}
            files = {name: FileInfo(**stated) for name, stated in manifest["files"].items()}
            identity = TokenizerInfo(**manifest["tokenizer"])
            manifest["hash"] = dataset_hash(identity, files, tuple(manifest["languages"]))
        (self._copy / MANIFEST).write_text(as_json(manifest))

    def _use(self) -> None:
        data = Dataset.open(self._copy)
        batches = PretrainingBatches(fit_recipe_to_data(self._recipe, data), data)
        batches(Progress(step=0, fraction=0.0, phase=0, phase_fraction=0.0))
        assert int(np.sum(data.token_counts)) == data.split("train").num_tokens


def _use_model(folder: Path) -> None:
    """Load a model, embed and predict."""
    model = load(folder, "float32")
    vectors = model.embed(LINES)
    assert np.isfinite(vectors).all()
    if isinstance(model, FineTunedModel):
        model.predict(LINES[:1])
