"""Export an encoder, or a classifier, to a GGUF file for llama.cpp."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

import bertwright
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, write_text
from bertwright.core.optional_dependencies import require_library
from bertwright.interop.gguf import GGUF_FILE
from bertwright.interop.gguf.architectures import LlamaArchitecture, nearest_architecture
from bertwright.interop.gguf.heads import LlamaHead, llama_head
from bertwright.interop.gguf.tokenizers import LlamaTokenizer, llama_tokenizer
from bertwright.interop.gguf.verification import LlamaParity, compare_with_llama
from bertwright.interop.huggingface.tensor_names import StateDict, to_stock_names
from bertwright.models.saving import CARD_FILE
from bertwright.models.text_model import TextModel
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel, network_of
from bertwright.tasks.text_encoder import ENCODER_ONLY

GgufType = Literal["f32", "f16", "q8_0"]
"""Types of the weight matrices; q8_0 is 8 bits with a scale per 32 weights."""

FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7}
"""``general.file_type`` by type."""

FLOAT32_TENSORS = ("position_embd", "token_types")
"""Tables that llama.cpp adds, and therefore expects in float32."""

RECIPE_KEY, TASK_KEY, ROLES_KEY = "bertwright.recipe", "bertwright.task", "bertwright.token_roles"
TOKENIZER_KEY = "tokenizer.huggingface.json"
"""Keys from which :mod:`~bertwright.interop.gguf.reader` builds the model again."""


@dataclass(frozen=True)
class GgufExport:
    """The result of an export: the architecture of llama.cpp, the bytes, and the parity.

    ``parity`` is None if it was not verified.
    """

    architecture: str
    num_bytes: int
    parity: LlamaParity | None = None


def export_gguf(
    model: TextModel, folder: Path, weight_type: GgufType = "f32", verify: bool = False
) -> GgufExport:
    """Write ``model.gguf`` and a model card.

    ``weight_type`` is the type of the weight matrices. ``verify`` opens the file with llama.cpp and
    compares tokens and outputs; a file that differs is not kept.

    Raises UserError naming the axis that llama.cpp does not have, and MissingExtra without ``gguf``
    or, to verify, ``llama-cpp-python``.
    """
    require_library("gguf", "gguf")
    if verify:
        require_library("llama-cpp", "llama-cpp")
    if weight_type not in get_args(GgufType):
        raise UserError(f"unknown type {weight_type!r}: choose {', '.join(get_args(GgufType))}")
    model = remove_fake_quantizers(model)
    network = network_of(model)
    architecture = nearest_architecture(network.recipe)
    if reasons := architecture.mismatches(network.recipe):
        raise UserError(
            f"llama.cpp does not compute the recipe {network.recipe.name}: {'; '.join(reasons)}: "
            f"export to onnx instead"
        )
    head = llama_head(model, architecture)
    tokenizer = llama_tokenizer(model.tokenizer, network.vocab_size)
    tensors = _llama_tensors(model, architecture, head)
    with atomic_folder(folder) as temporary:
        file = temporary / GGUF_FILE
        _write_file(file, model, architecture, head, tokenizer, tensors, weight_type)
        parity = compare_with_llama(model, file, head.is_classifier) if verify else None
        card = _model_card(model, architecture, weight_type, head, parity)
        write_text(temporary / CARD_FILE, card)
        return GgufExport(architecture.name, file.stat().st_size, parity)


def _llama_tensors(model: TextModel, architecture: LlamaArchitecture, head: LlamaHead) -> StateDict:
    """Return the tensors by the names of llama.cpp, float32."""
    network = network_of(model)
    positions = network.recipe.encoder.positions
    encoder: StateDict = {n: t for n, t in network.named_parameters() if n.startswith("encoder.")}
    if (name := "encoder.embeddings.positions.table.weight") in encoder:
        # The rows before the offset belong to no position.
        encoder[name] = encoder[name][getattr(positions, "offset", 0) :]
    table = architecture.table + architecture.head_table
    try:
        tensors = to_stock_names(table, encoder | head.tensors)
    except UserError as error:
        raise UserError(
            f"llama.cpp's {architecture.name} does not compute {network.recipe.name}: {error}: "
            f"export to onnx instead"
        ) from error
    return {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}


def _write_file(
    file: Path,
    model: TextModel,
    architecture: LlamaArchitecture,
    head: LlamaHead,
    tokenizer: LlamaTokenizer,
    tensors: StateDict,
    weight_type: GgufType,
) -> None:
    import gguf

    recipe = network_of(model).recipe
    writer: Any = gguf.GGUFWriter(str(file), architecture.name)
    writer.add_name(recipe.name)
    writer.add_file_type(FILE_TYPES[weight_type])
    writer.add_string("general.quantized_by", f"bertwright {bertwright.__version__}")
    metadata = architecture.metadata(recipe, _max_length(model)) | head.metadata
    for key, value in metadata.items():
        _add(writer, f"{architecture.name}.{key}", value)
    writer.add_tokenizer_model(tokenizer.model)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.types)
    if tokenizer.merges:
        writer.add_token_merges(tokenizer.merges)
    segments = tensors.get("token_types.weight")
    writer.add_token_type_count(1 if segments is None else len(segments))
    for key, value in tokenizer.metadata.items():
        _add(writer, f"tokenizer.ggml.{key}", value)
    stored = recipe if head.is_classifier else model.model.recipe.model_copy(update=ENCODER_ONLY)
    writer.add_string(RECIPE_KEY, stored.as_yaml())
    writer.add_string(TOKENIZER_KEY, model.tokenizer.backend.to_str())
    writer.add_string(ROLES_KEY, json.dumps(model.tokenizer.roles))
    if head.is_classifier:
        assert isinstance(model, FineTunedModel)
        writer.add_string(TASK_KEY, model.task_metadata_json(weight_type == "f32"))
    for name, tensor in tensors.items():
        kind = _tensor_type(name, tensor, weight_type)
        data = np.ascontiguousarray(tensor.numpy())
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor_type(name: str, tensor: Tensor, weight_type: GgufType) -> Any:
    """Return the type of a tensor: float32 for vectors, and float16 for rows that do not divide."""
    import gguf

    types: Any = gguf.GGMLQuantizationType
    if tensor.ndim == 1 or name.startswith(FLOAT32_TENSORS) or weight_type == "f32":
        return types.F32
    block_size, _ = gguf.GGML_QUANT_SIZES[types.Q8_0]
    return types.Q8_0 if weight_type == "q8_0" and tensor.shape[1] % block_size == 0 else types.F16


def _add(writer: Any, key: str, value: bool | int | float | str | list[str]) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case list():
            writer.add_array(key, value)


def _max_length(model: TextModel) -> int:
    """Return the context length: the rows of the position table, or the longest training length."""
    recipe = network_of(model).recipe
    if (size := model.model.encoder.max_length) is not None:
        return size
    return max(recipe.input_format_of(phase).length for phase in range(len(recipe.phases)))


@torch.no_grad()
def _model_card(
    model: TextModel,
    architecture: LlamaArchitecture,
    weight_type: GgufType,
    head: LlamaHead,
    parity: LlamaParity | None,
) -> str:
    """Return the README.md of the folder."""
    recipe = network_of(model).recipe
    task = f", fine-tuned for {model.task.name}" if isinstance(model, FineTunedModel) else ""
    outputs = "the logits of its classifier" if head.is_classifier else "the vector of a text"
    command = "llama-embedding -m model.gguf -p 'A sentence.' --embd-normalize -1"
    lines = [
        "---",
        "library_name: gguf",
        f"pipeline_tag: {'text-classification' if head.is_classifier else 'feature-extraction'}",
        "---",
        "",
        f"# {recipe.name}{task}, for llama.cpp",
        "",
        f"GGUF of the architecture `{architecture.name}` with {weight_type} weights. llama.cpp "
        f"returns {outputs}.",
        "",
        *([] if parity is None else [f"- compared with bertwright: {parity.description}", ""]),
        "```sh",
        command,
        "```",
        "",
        "```python",
        "import bertwright as bw",
        "",
        'model = bw.load("this folder")',
        "```",
    ]
    return "\n".join(lines) + "\n"
