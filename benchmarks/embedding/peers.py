"""Other libraries that embed texts: sentence-transformers and plain onnxruntime.

An :data:`EmbedFunction` returns normalised vectors (N, D) of N texts.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.core.hardware import num_cores
from bertwright.core.optional_dependencies import require_library
from bertwright.interop.graph.tracing import silence_exporter
from bertwright.interop.onnx.quantization import quantise_graph
from bertwright.models.text_batches import BATCH_TOKENS
from bertwright.modules.inference.int8_linear import int8_sums_saturate

Vectors = NDArray[np.float32]
EmbedFunction = Callable[[Sequence[str]], Vectors]

INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")


def load_sentence_transformers(
    folder: Path, dtype: Literal["float32", "bfloat16"]
) -> EmbedFunction:
    """Return sentence-transformers with its defaults: padded batches of 32."""
    require_library("sentence-transformers", "dev")
    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(folder), model_kwargs={"torch_dtype": dtype})

    def embed(texts: Sequence[str]) -> Vectors:
        vectors: Tensor = model.encode(list(texts), show_progress_bar=False, convert_to_tensor=True)
        return vectors.float().cpu().numpy()

    return embed


def load_onnxruntime_int8(folder: Path) -> EmbedFunction:
    """Return the stock model of Transformers as an int8 ONNX graph, with batches sorted by length.

    Weights are quantised per channel; all settings are the defaults.
    """
    require_library("onnxruntime", "onnx")
    import onnxruntime
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as work:
        graph, quantised = Path(work) / "model.onnx", Path(work) / "int8.onnx"
        _write_stock_graph(folder, graph)
        quantise_graph(graph, quantised, int8_sums_saturate())
        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_cores()
        session: Any = onnxruntime.InferenceSession(
            str(quantised), options, providers=["CPUExecutionProvider"]
        )
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def embed(texts: Sequence[str]) -> Vectors:
        sequences: list[list[int]] = tokenizer(list(texts), truncation=True)["input_ids"]
        order = sorted(range(len(sequences)), key=lambda index: -len(sequences[index]))
        vectors: list[Vectors] = []
        while (start := sum(map(len, vectors))) < len(sequences):
            length = len(sequences[order[start]])
            batch = [sequences[n] for n in order[start : start + max(1, BATCH_TOKENS // length)]]
            vectors.append(_mean_pool(session, batch, length))
        return np.concatenate(vectors)[np.argsort(order)]

    return embed


class _LastHiddenState(nn.Module):
    """A stock model that returns the last hidden states only."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        inputs = dict(zip(INPUT_NAMES, (input_ids, attention_mask, token_type_ids), strict=True))
        hidden_states: Tensor = self.model(**inputs).last_hidden_state
        return hidden_states


def _write_stock_graph(folder: Path, path: Path) -> None:
    from transformers import AutoModel

    model: nn.Module = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = tuple(torch.ones(3, 7, dtype=torch.int64) for _ in INPUT_NAMES)
    inputs[1][1, 4:] = 0
    dynamic = torch.export.Dim.DYNAMIC
    with silence_exporter():
        program: Any = torch.onnx.export(
            _LastHiddenState(model),
            inputs,
            dynamo=True,
            input_names=INPUT_NAMES,
            output_names=("states",),
            dynamic_shapes=({0: dynamic, 1: dynamic},) * len(INPUT_NAMES),
            verbose=False,
        )
        program.save(str(path))


def _mean_pool(session: Any, sequences: Sequence[Sequence[int]], sequence_length: int) -> Vectors:
    token_ids = np.zeros((len(sequences), sequence_length), np.int64)
    for index, sequence in enumerate(sequences):
        token_ids[index, : len(sequence)] = sequence
    lengths = np.array([[len(sequence)] for sequence in sequences])
    mask = (np.arange(sequence_length) < lengths).astype(np.int64)
    inputs = dict(zip(INPUT_NAMES, (token_ids, mask, np.zeros_like(token_ids)), strict=True))
    states: Vectors = session.run(None, inputs)[0]
    pooled = np.einsum("bld,bl->bd", states, mask.astype(np.float32)) / mask.sum(1, keepdims=True)
    vectors: Vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return vectors
