"""Folders of models and of data with one field changed, or some bytes."""

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

from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder, import_folder
from bertwright.interop.loading import load
from bertwright.model import Model
from bertwright.recipes import Recipe
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.text.manifest import MANIFEST, File, TokenizerIdentity, content_hash
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer
from bertwright.training.clock import Place
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.run_folder import fitted
from fuzz.case import Case, Kind
from fuzz.junk import as_json, as_yaml, changed, changed_bytes, changed_text
from fuzz.recipes import SYSTEMS
from fuzz.workspace import TINY, Workspace

DTYPES = (torch.int64, torch.float16, torch.bfloat16, torch.bool, torch.float64)
LINES = ["The red bird sees a tree.", ""]


def _restore(whole: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)


def _files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that are read when it is opened."""
    return [file for file in sorted(folder.iterdir()) if file.name != "README.md"]


def _change_file(draw: random.Random, file: Path) -> str:
    """Change a file of a folder somewhere; return what was written, or its beginning."""
    if file.suffix == ".safetensors" and draw.random() < 0.6:
        return _change_weights(draw, file)
    if file.suffix not in (".json", ".yaml", ".txt", ".jsonl"):
        file.write_bytes(changed_bytes(draw, file.read_bytes()))
        return f"{file.name}: bytes"
    text = file.read_text(encoding="utf-8")
    if draw.random() < 0.25:
        text = changed_text(draw, text)
    elif file.suffix == ".json":
        text = as_json(changed(draw, json.loads(text)))
    elif file.suffix == ".yaml":
        text = as_yaml(changed(draw, yaml.safe_load(text)))
    else:
        text = changed_text(draw, text)
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    return f"{file.name}: {text}"


def _change_weights(draw: random.Random, file: Path) -> str:
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    name = draw.choice(sorted(tensors))
    tensor = tensors[name]
    act = draw.randrange(5)
    if act == 0:
        del tensors[name]
    elif act == 1:
        tensors[f"{name}.more"] = tensor.clone()
    elif act == 2 and tensor.numel() and tensor.is_floating_point():
        tensor.view(-1)[draw.randrange(tensor.numel())] = draw.choice((float("nan"), float("inf")))
    elif act == 3:
        tensors[name] = tensor.to(draw.choice(DTYPES))
    else:
        tensors[name] = tensor.flatten()[: draw.randrange(tensor.numel() + 1)].contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
    return f"{file.name}: {name} ({act})"


class ModelFolders(Kind):
    """Folders of ours, pre-trained and fine-tuned."""

    name: ClassVar[str] = "model folders"
    weight: ClassVar[float] = 6

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._whole, self._copy = (made.model, made.tuned), scratch / "model"

    def case(self, draw: random.Random) -> Case:
        whole = draw.choice(self._whole)
        _restore(whole, self._copy)
        files = _files_of(self._copy)
        what = _change_file(draw, draw.choice(files))
        return Case(f"{whole.name}/{what}", lambda: _used(self._copy))


class StockFolders(Kind):
    """Folders of stock classes of several families."""

    name: ClassVar[str] = "stock folders"
    weight: ClassVar[float] = 6

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._folder, self._copy = made.folder / "stock", scratch / "stock"
        tokenizer = Tokenizer.load(made.tokenizer)
        for system in SYSTEMS:
            with suppress(UserError):
                recipe = Recipe.load(f"{system}-tiny", *TINY[1:3], "encoder.width=32")
                model = Model.build(recipe, tokenizer.size, tokenizer)
                export_folder(model, tokenizer, self._folder / system)
        self._systems = sorted(path.name for path in self._folder.iterdir())

    def case(self, draw: random.Random) -> Case:
        system = draw.choice(self._systems)
        _restore(self._folder / system, self._copy)
        files = _files_of(self._copy)
        files += [self._copy / "config.json"] * 4
        what = _change_file(draw, draw.choice(files))
        return Case(f"{system}/{what}", lambda: import_folder(self._copy))


class DataFolders(Kind):
    """Folders of prepared data whose checksums were made to fit."""

    name: ClassVar[str] = "data folders"
    weight: ClassVar[float] = 6

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._whole, self._copy = made.data, scratch / "prepared"
        self._recipe = Recipe.load("bert-tiny", *TINY, "text.tokenizer.size=120")

    def case(self, draw: random.Random) -> Case:
        _restore(self._whole, self._copy)
        manifest = json.loads((self._copy / MANIFEST).read_text())
        act = draw.randrange(4)
        if act == 0:
            manifest = changed(draw, manifest)
            what = as_json(manifest)
        elif act == 1:
            file = self._copy / draw.choice(sorted(manifest["files"]))
            what = _change_file(draw, file)
        else:
            file = self._copy / draw.choice(sorted(manifest["files"]))
            content = bytearray(file.read_bytes())
            for _ in range(draw.randint(1, 3)):
                if content:
                    content[draw.randrange(len(content))] = draw.randrange(256)
            file.write_bytes(content)
            what = f"{file.name}: some bytes"
        if act == 0 and draw.random() < 0.3:
            (self._copy / MANIFEST).write_text(as_json(manifest))
        else:
            self._seal(manifest)
        return Case(f"data/{what}", self._use)

    def _seal(self, manifest: Any) -> None:
        """Write a manifest with sizes, checksums and a hash that fit, as far as it is one."""
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
            files = {name: File(**stated) for name, stated in manifest["files"].items()}
            identity = TokenizerIdentity(**manifest["tokenizer"])
            manifest["hash"] = content_hash(identity, files, tuple(manifest["languages"]))
        (self._copy / MANIFEST).write_text(as_json(manifest))

    def _use(self) -> None:
        data = Data.open(self._copy)
        batches = RecipeBatches(fitted(self._recipe, data), data)
        batches(Place(step=0, progress=0.0, phase=0, phase_progress=0.0))
        assert int(np.sum(data.piece_counts)) == data.split("train").num_pieces


def _used(folder: Path) -> None:
    """Load a model and ask it for something."""
    model = load(folder, "float32")
    vectors = model.embed(LINES)
    assert np.isfinite(vectors).all()
    if isinstance(model, FineTuned):
        model.predict(LINES[:1])
