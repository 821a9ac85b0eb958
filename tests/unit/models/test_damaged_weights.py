"""Damaged weights, and weights that do not fit the recipe, are refused on loading."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.core.hardware import memory_bytes
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.loading import load
from bertwright.models import Model
from bertwright.models.saving import WEIGHTS_FILE
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.runtime.finite import is_finite
from bertwright.tasks.adapters import LoraConfig
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.training.checkpoints import CheckpointManager
from small_tasks import ENGLISH, classes
from toy_recipes import toy

Tensors = dict[str, Tensor]
NAME = "encoder.embeddings.tokens.weight"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pre-trained and a fine-tuned model."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer)
    model.save(folder / "pretrained")
    settings = {"epochs": 1, "adaptation": LoraConfig(rank=2)}
    task = table_task("words", Columns(), "class")
    finetune(model, task, train=classes(), dev=classes(), output=folder / "tuned", **settings)
    return {path.name: path for path in folder.iterdir()}


def set_last(value: float, dtype: torch.dtype = torch.float32) -> Callable[[Tensors], None]:
    def damage(tensors: Tensors) -> None:
        tensors[NAME] = tensors[NAME].to(dtype)
        tensors[NAME][-1, -1] = value

    return damage


def cast(dtype: torch.dtype) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.__setitem__(NAME, tensors[NAME].to(dtype))


DAMAGES: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "nan": (set_last(float("nan")), f"{NAME} holds NaN or infinity"),
    "infinity": (set_last(float("inf")), f"{NAME} holds NaN or infinity"),
    "minus infinity": (set_last(-float("inf")), f"{NAME} holds NaN or infinity"),
    "half": (set_last(float("nan"), torch.float16), f"{NAME} holds NaN or infinity"),
    "bfloat16": (set_last(float("inf"), torch.bfloat16), f"{NAME} holds NaN or infinity"),
    "integers": (cast(torch.int64), f"{NAME} has dtype int64, the recipe needs float32"),
    "bytes": (cast(torch.uint8), f"{NAME} has dtype uint8"),
    "booleans": (cast(torch.bool), f"{NAME} has dtype bool"),
    "shape": (lambda t: t.update({NAME: t[NAME][:, :-1].contiguous()}), f"{NAME} has shape"),
    "missing": (lambda t: t.pop("encoder.blocks.0.norms.attention.weight"), "lacks the parameter"),
    "more": (lambda t: t.update(other=torch.zeros(3)), "holds the parameter other"),
}


@pytest.mark.parametrize("kind", ["pretrained", "tuned"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_weights_that_do_not_fit_the_recipe_are_refused(
    damage: str, kind: str, folders: dict[str, Path]
) -> None:
    file = folders[kind] / WEIGHTS_FILE
    content = file.read_bytes()
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    change, message = DAMAGES[damage]
    change(tensors)
    try:
        save_file(tensors, file)
        with pytest.raises(UserError, match=message) as refused:
            load(folders[kind])
        assert str(file) in str(refused.value)
    finally:
        file.write_bytes(content)
    load(folders[kind])


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_refused(fraction: float, folders: dict[str, Path]) -> None:
    file = folders["pretrained"] / WEIGHTS_FILE
    content = file.read_bytes()
    try:
        file.write_bytes(content[: int(fraction * len(content))])
        with pytest.raises(UserError, match="is damaged"):
            load(folders["pretrained"])
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    "metadata",
    ['{"a": 3}', "[", "[" * 100_000, '{"a": {"shape": [-1]}}', '{"a": {"shape": "x"}}'],
)
def test_invalid_metadata_of_packed_weights_is_damage(
    metadata: str, folders: dict[str, Path]
) -> None:
    file = folders["pretrained"] / WEIGHTS_FILE
    content = file.read_bytes()
    try:
        save_file(load_file(file), file, metadata={"packed": metadata})
        with pytest.raises(UserError, match="is damaged"):
            load(folders["pretrained"])
    finally:
        file.write_bytes(content)


def test_a_checkpoint_with_nan_is_refused(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.save(1, {"parameters": {"a": torch.tensor([0.0, float("nan")])}}, {}, None)
    newest, _ = checkpoints.load_newest()
    assert newest is not None
    with pytest.raises(UserError, match=r"parameters\.safetensors: a holds NaN or infinity"):
        newest.load_tensors("parameters")


def test_the_largest_numbers_are_finite() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        largest = torch.finfo(dtype).max
        assert is_finite(torch.tensor([largest, largest, -largest, 0.0], dtype=dtype))
        for value in (float("nan"), float("inf"), -float("inf")):
            assert not is_finite(torch.tensor([largest, value, -largest], dtype=dtype))
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
    "text.tokenizer.vocab_size": 10**12,
    "assembly.length": 10**12,
    "batch_tokens": 10**15,
    "micro_batch_tokens": 10**15,
    "steps": 10**18,
    "seed": 10**30,
    "phases": [{"batch": 10**9}],
    "encoder.memory_length": 10**12,
    "encoder.pruned_sizes": {"heads": [10**12]},
    "encoder.visibility": {"kind": "window", "size": 10**12},
}


@pytest.mark.parametrize("key", SIZES)
def test_sizes_are_bounded_before_anything_is_built(key: str) -> None:
    start = time.process_time()
    with pytest.raises(UserError, match=key.rpartition(".")[2]):
        Recipe.load("bert-tiny", f"{key}={SIZES[key]}")
    assert time.process_time() - start < 1


def test_a_model_larger_than_memory_is_refused_before_allocation() -> None:
    sizes = ("encoder.width=65536", "encoder.depth.layers=100", "encoder.mixer.heads=1024")
    recipe = Recipe.load("bert-tiny", *sizes)
    start = time.process_time()
    with pytest.raises(UserError, match=r"parameters, which take .* GB, and this machine has"):
        Model.build(recipe, 1000)
    assert time.process_time() - start < 2
    assert 2**28 < memory_bytes() < 2**50
