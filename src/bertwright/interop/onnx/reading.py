"""An ONNX folder as a model: what reads texts and answers is ours, the states are onnxruntime's."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.axes import ReadingPrecision
from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.interop.onnx.about import GRAPH, INT8, About
from bertwright.interop.onnx.graph import given_to
from bertwright.interop.onnx.inputs import ANSWERS, STATES, rows
from bertwright.interop.onnx.session import Session
from bertwright.model.finite import is_finite
from bertwright.model.folder import load_recipe
from bertwright.model.layers import Layers
from bertwright.model.model import Model
from bertwright.model.reading import ReadBatch
from bertwright.model.text_model import TextModel, Vectors
from bertwright.tasks.fine_tuned import BARE, FineTuned, Told, is_fine_tuned, read_told
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Tokenizer

AnyNet = TypeVar("AnyNet", Model, TaskModel)


class OnnxModel(TextModel):
    """A :class:`TextModel` without weights: it embeds and encodes as the model that it was exported
    from, by the graph of a file. What needs the weights is refused."""

    def __init__(self, about: About, session: Session, net: Model, tokenizer: Tokenizer) -> None:
        super().__init__(net, tokenizer, "float32")
        self.about, self.session = about, session

    @torch.inference_mode()
    def states(self, layers: Layers, batch: ReadBatch, wanted: Tensor | None = None) -> Tensor:
        """The last states of a batch (B, L, D), or those of the ``wanted`` flat places (M, D).

        Errors: UserError for other layers, which the graph does not give.
        """
        if layers.numbers != (len(self.model.encoder.blocks),):
            raise UserError(
                f"the graph of {self.about.name} gives its last layer: leave --layers out, or name "
                f"the folder that it was exported from"
            )
        found = self.run(STATES, batch)
        return found if wanted is None else found.flatten(0, 1).index_select(0, wanted)

    def run(self, output: str, batch: ReadBatch) -> Tensor:
        """Return one of the outputs of the graph for a batch.

        Errors: UserError where it holds NaN or infinity.
        """
        given = given_to(batch, self.about.inputs)
        values = torch.from_numpy(self.session.run(output, given))
        if not is_finite(values):
            raise UserError(
                f"the graph of {self.about.name} gives NaN or infinity: its weights are damaged, "
                f"export the model again"
            )
        return values.to(self.device)

    def said(self, output: str, texts: Sequence[str]) -> list[Vectors]:
        """One of the outputs for every text, (K,) or, of each of its pieces, (L, K)."""
        found: list[Vectors] = [np.empty(0, np.float32)] * len(texts)
        for batch in self._batches(self.rows(texts)):
            values = self.run(output, batch).cpu().numpy()
            for row, number in enumerate(batch.numbers):
                own = values[row]
                found[number] = own if own.ndim == 1 else own[: batch.lengths[row]]
        return found

    def save(self, folder: str | Path, training: Mapping[str, Any] | None = None) -> NoReturn:
        """Errors: UserError, always."""
        self._refuse("save")

    def record(self, *patterns: str) -> NoReturn:
        """Errors: UserError, always."""
        self._refuse("record")

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Errors: UserError, always."""
        self._refuse("replace")

    def require_output(self, verb: str) -> None:
        """Errors: UserError, always."""
        self._refuse(verb)

    def _refuse(self, verb: str) -> NoReturn:
        raise _without_weights(verb, self.about.name)


class OnnxFineTuned(OnnxModel, FineTuned):
    """A :class:`FineTuned` without weights, which predicts as the model that it was exported
    from."""

    def __init__(
        self, about: About, session: Session, net: TaskModel, tokenizer: Tokenizer, told: Told
    ) -> None:
        FineTuned.__init__(
            self, net, tokenizer, told.task, told.length, "float32", told.temperature
        )
        self.about, self.session = about, session

    def answered(self, batch: ReadBatch, where: Tensor | None, sizes: Sequence[int]) -> Tensor:
        """What the graph says of a batch: (B, K) float32, or (M, K) of the places ``where``
        (M,)."""
        found = self.run(ANSWERS, batch)
        return found if where is None else found.flatten(0, 1).index_select(0, where)


def load_onnx(
    folder: Path, precision: ReadingPrecision | None = None, threads: int | None = None
) -> OnnxModel:
    """Open an ONNX folder: its graph in 8 bits where there is one, unless ``precision`` is float32.

    ``threads`` compute one operator, None for as many as there are cores. Errors: UserError for a
    folder that is damaged, and for another precision; MissingExtra without onnxruntime.
    """
    if precision == "bf16":
        raise UserError(f"{folder} is computed in float32 or in 8 bits: leave the precision out")
    about = About.read(folder)
    if precision == "int8" and INT8 not in about.files:
        raise UserError(f"{folder} has no graph in 8 bits: write one with export --to onnx --int8")
    if precision == "float32" and GRAPH not in about.files:
        raise UserError(f"{folder} has a graph in 8 bits alone: leave the precision out")
    name = INT8 if INT8 in about.files and precision != "float32" else GRAPH
    session = Session(about.require_whole(folder, name), threads)
    tokenizer, recipe = Tokenizer.load(folder), load_recipe(folder)
    _try(session, about, tokenizer.size, folder / name)
    told = read_told(folder) if is_fine_tuned(folder) else None
    with torch.device("meta"):
        if told is not None:
            net = TaskModel(recipe, tokenizer.size, told.plan, told.adaptation)
            return OnnxFineTuned(about, session, _emptied(net, about), tokenizer, told)
        model = Model(recipe.model_copy(update=BARE), tokenizer.size)
        return OnnxModel(about, session, _emptied(model, about), tokenizer)


def _try(session: Session, about: About, num_tokens: int, graph: Path) -> None:
    """Compute each output of a graph once; UserError where that cannot be, or gives NaN."""
    for output in about.outputs:
        try:
            values = torch.from_numpy(session.run(output, rows(about.inputs, num_tokens, 1, 4)))
        except Exception as error:  # onnxruntime's classes have no base but this one
            raise UserError(f"{graph} is damaged ({error}): export the model again") from error
        if not is_finite(values):
            raise UserError(f"{graph} gives NaN or infinity: export the model again")


def _emptied(net: AnyNet, about: About) -> AnyNet:
    """A model of which only the shape is left."""
    elsewhere = Elsewhere(about.name, net.encoder.longest, len(net.encoder.blocks))
    net.encoder = cast(Encoder, elsewhere)
    for module in net.modules():
        for name, _ in list(module.named_parameters(recurse=False)):
            module.register_parameter(name, None)
    return net


class Elsewhere(nn.Module):
    """In the place of an encoder whose weights are in a graph: its longest row and its number of
    blocks. Whoever asks for more is told where that is."""

    def __init__(self, name: str, longest: int | None, num_blocks: int) -> None:
        super().__init__()
        self.name, self.longest = name, longest
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(num_blocks))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # which Python asks of everything
                raise
            raise _without_weights("this", self.name) from None

    def forward(self, *given: Any, **named: Any) -> NoReturn:
        """Errors: UserError, always."""
        raise _without_weights("this", self.name)


def _without_weights(verb: str, name: str) -> UserError:
    return UserError(
        f"{verb} needs the weights, and an ONNX folder of {name} embeds and predicts alone: name "
        f"the folder that it was exported from"
    )
