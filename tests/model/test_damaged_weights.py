"""Weights that are no numbers, or not those that the recipe asks for, are refused when loaded."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.model import Model
from bertwright.model.finite import is_finite
from bertwright.model.folder import WEIGHTS
from bertwright.model.memory import memory_bytes
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.adaptation import LowRank
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.checkpoints import Checkpoints
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes

Tensors = dict[str, Tensor]
NAME = "encoder.embeddings.pieces.weight"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pre-trained and a fine-tuned model."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer)
    model.save(folder / "pretrained")
    settings = {"epochs": 1, "adaptation": LowRank(rank=2)}
    task = table_task("words", Columns(), "class")
    finetune(model, task, train=classes(), dev=classes(), out=folder / "tuned", **settings)
    return {path.name: path for path in folder.iterdir()}


def put(value: float, dtype: torch.dtype = torch.float32) -> Callable[[Tensors], None]:
    def harm(tensors: Tensors) -> None:
        tensors[NAME] = tensors[NAME].to(dtype)
        tensors[NAME][-1, -1] = value

    return harm


def cast(dtype: torch.dtype) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.__setitem__(NAME, tensors[NAME].to(dtype))


HARMS: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "nan": (put(float("nan")), f"{NAME} holds NaN or infinity"),
    "infinity": (put(float("inf")), f"{NAME} holds NaN or infinity"),
    "minus infinity": (put(-float("inf")), f"{NAME} holds NaN or infinity"),
    "half": (put(float("nan"), torch.float16), f"{NAME} holds NaN or infinity"),
    "bfloat16": (put(float("inf"), torch.bfloat16), f"{NAME} holds NaN or infinity"),
    "whole numbers": (cast(torch.int64), f"{NAME} holds int64 numbers, .* asks for float32"),
    "bytes": (cast(torch.uint8), f"{NAME} holds uint8 numbers"),
    "booleans": (cast(torch.bool), f"{NAME} holds bool numbers"),
    "shape": (lambda t: t.update({NAME: t[NAME][:, :-1].contiguous()}), f"{NAME} has shape"),
    "missing": (lambda t: t.pop("encoder.blocks.0.norms.attention.weight"), "lacks the parameter"),
    "more": (lambda t: t.update(other=torch.zeros(3)), "holds the parameter other"),
}


@pytest.mark.parametrize("kind", ["pretrained", "tuned"])
@pytest.mark.parametrize("harm", HARMS)
def test_other_weights_than_the_recipe_asks_for_are_refused(
    harm: str, kind: str, folders: dict[str, Path]
) -> None:
    file = folders[kind] / WEIGHTS
    content = file.read_bytes()
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change, message = HARMS[harm]
    change(tensors)
    try:
        save_file(tensors, file)
        with pytest.raises(UserError, match=message) as refused:
            load(folders[kind])
        assert str(file) in str(refused.value)
    finally:
        file.write_bytes(content)
    load(folders[kind])


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_file_that_is_cut_short_is_refused(share: float, folders: dict[str, Path]) -> None:
    file = folders["pretrained"] / WEIGHTS
    content = file.read_bytes()
    try:
        file.write_bytes(content[: int(share * len(content))])
        with pytest.raises(UserError, match="is damaged"):
            load(folders["pretrained"])
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    "about",
    ['{"a": 3}', "[", "[" * 100_000, '{"a": {"shape": [-1]}}', '{"a": {"shape": "x"}}'],
)
def test_a_description_of_packed_weights_that_is_none_is_damage(
    about: str, folders: dict[str, Path]
) -> None:
    file = folders["pretrained"] / WEIGHTS
    content = file.read_bytes()
    try:
        save_file(load_file(file), file, metadata={"packed": about})
        with pytest.raises(UserError, match="is damaged"):
            load(folders["pretrained"])
    finally:
        file.write_bytes(content)


def test_a_checkpoint_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {"parameters": {"a": torch.tensor([0.0, float("nan")])}}, {}, None)
    newest, _ = checkpoints.newest()
    assert newest is not None
    with pytest.raises(UserError, match=r"parameters\.safetensors: a holds NaN or infinity"):
        newest.tensors("parameters")


def test_finite_numbers_are_finite_at_any_size() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        most = torch.finfo(dtype).max
        assert is_finite(torch.tensor([most, most, -most, 0.0], dtype=dtype))
        for value in (float("nan"), float("inf"), -float("inf")):
            assert not is_finite(torch.tensor([most, value, -most], dtype=dtype))
    assert is_finite(torch.zeros(0))
    assert is_finite(torch.zeros(3, dtype=torch.int64))
    assert not is_finite(torch.tensor([0.0, float("nan")]).to(torch.float8_e4m3fn))


SIZES = {
    "encoder.width": 10**12,
    "encoder.depth.layers": 10**9,
    "encoder.mixer.heads": 10**9,
    "encoder.feed_forward.width": 10**12,
    "encoder.positions.size": 10**12,
    "encoder.embeddings.segments": 10**9,
    "text.tokenizer.size": 10**12,
    "assembly.length": 10**12,
    "batch_tokens": 10**15,
    "micro_batch_tokens": 10**15,
    "steps": 10**18,
    "seed": 10**30,
    "phases": [{"batch": 10**9}],
    "encoder.memory": 10**12,
    "encoder.cut": {"heads": [10**12]},
    "encoder.visibility": {"kind": "window", "size": 10**12},
}


@pytest.mark.parametrize("key", SIZES)
def test_no_size_that_a_recipe_states_is_built_before_it_is_bounded(key: str) -> None:
    began = time.process_time()
    with pytest.raises(UserError, match=key.rpartition(".")[2]):
        Recipe.load("bert-tiny", f"{key}={SIZES[key]}")
    assert time.process_time() - began < 1


def test_a_model_larger_than_memory_is_refused_before_it_is_made() -> None:
    sizes = ("encoder.width=65536", "encoder.depth.layers=100", "encoder.mixer.heads=1024")
    recipe = Recipe.load("bert-tiny", *sizes)
    began = time.process_time()
    with pytest.raises(UserError, match=r"parameters, which take .* GB, and this machine has"):
        Model.build(recipe, 1000)
    assert time.process_time() - began < 2
    assert 2**28 < memory_bytes() < 2**50
