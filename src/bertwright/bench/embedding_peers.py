"""What vectors are got with today: sentence-transformers, and onnxruntime without anything around.

Each takes texts and gives normalised vectors, (N, D) float32.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.encoder.kernels.eight_bits import saturates
from bertwright.extras import require
from bertwright.interop.onnx.quantising import quantise
from bertwright.interop.onnx.tracing import quiet
from bertwright.machine.cores import num_cores
from bertwright.model.reading import TOKEN_BUDGET

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def sentence_transformers(folder: Path, dtype: Literal["float32", "bfloat16"]) -> Embed:
    """As it comes: batches of 32, padded."""
    require("sentence-transformers", "dev")
    from sentence_transformers import SentenceTransformer

    peer: Any = SentenceTransformer(str(folder), model_kwargs={"torch_dtype": dtype})

    def embed(texts: Sequence[str]) -> Vectors:
        found: Tensor = peer.encode(list(texts), show_progress_bar=False, convert_to_tensor=True)
        return found.float().cpu().numpy()

    return embed


def onnxruntime_in_8_bits(folder: Path) -> Embed:
    """The stock model of Transformers as a graph, quantised by channel, on batches that are sorted
    by length; every setting as it comes."""
    require("onnxruntime", "onnx")
    import onnxruntime
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as work:
        graph, small = Path(work) / "model.onnx", Path(work) / "int8.onnx"
        _write_stock_graph(folder, graph)
        quantise(graph, small, saturates())
        options: Any = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_cores()
        session: Any = onnxruntime.InferenceSession(
            str(small), options, providers=["CPUExecutionProvider"]
        )
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def embed(texts: Sequence[str]) -> Vectors:
        rows: list[list[int]] = tokenizer(list(texts), truncation=True)["input_ids"]
        order = sorted(range(len(rows)), key=lambda number: -len(rows[number]))
        found: list[Vectors] = []
        while sum(map(len, found)) < len(rows):
            start = sum(map(len, found))
            length = len(rows[order[start]])
            own = [rows[n] for n in order[start : start + max(1, TOKEN_BUDGET // length)]]
            found.append(_pooled(session, own, length))
        return np.concatenate(found)[np.argsort(order)]

    return embed


class _Stock(nn.Module):
    """The last states alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pieces: Tensor, real: Tensor, segments: Tensor) -> Tensor:
        given = dict(zip(INPUTS, (pieces, real, segments), strict=True))
        found: Tensor = self.model(**given).last_hidden_state
        return found


def _write_stock_graph(folder: Path, path: Path) -> None:
    from transformers import AutoModel

    model: nn.Module = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    given = tuple(torch.ones(3, 7, dtype=torch.int64) for _ in INPUTS)
    given[1][1, 4:] = 0
    any_number = torch.export.Dim.DYNAMIC
    with quiet():
        program: Any = torch.onnx.export(
            _Stock(model),
            given,
            dynamo=True,
            input_names=INPUTS,
            output_names=("states",),
            dynamic_shapes=({0: any_number, 1: any_number},) * len(INPUTS),
            verbose=False,
        )
        program.save(str(path))


def _pooled(session: Any, rows: Sequence[Sequence[int]], length: int) -> Vectors:
    pieces = np.zeros((len(rows), length), np.int64)
    for number, row in enumerate(rows):
        pieces[number, : len(row)] = row
    real = (np.arange(length) < np.array([[len(row)] for row in rows])).astype(np.int64)
    given = dict(zip(INPUTS, (pieces, real, np.zeros_like(pieces)), strict=True))
    states: Vectors = session.run(None, given)[0]
    pooled = np.einsum("bld,bl->bd", states, real.astype(np.float32)) / real.sum(1, keepdims=True)
    vectors: Vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
    return vectors
