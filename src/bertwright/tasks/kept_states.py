"""What heads read of an encoder that stays as it is: computed once, trained on often."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bertwright.axes import Precision
from bertwright.model.folder import filled
from bertwright.model.reading import read_batches
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.answers import Floats, Prediction
from bertwright.tasks.encoding import TaskRow, documents_of
from bertwright.tasks.fine_tuned import BARE, FineTuned, flat_places
from bertwright.tasks.parts import Part
from bertwright.tasks.standard import Standard
from bertwright.tasks.task_model import Adapted


class KeptStates:
    """What the head of every part reads of all rows of its examples, those held out included.

    They are kept in the precision that heads are trained in.
    """

    def __init__(
        self, source: TextModel, net: Adapted, parts: Sequence[Part], precision: Precision
    ) -> None:
        self._source, self._parts = _seeing_as(net.recipe, source), parts
        self._type = torch.bfloat16 if precision == "bf16" else torch.float32
        self._train: list[list[Tensor]] = []
        self._dev: list[list[Tensor]] = []
        self._dev_rows: list[list[TaskRow]] = []
        self._heads = [net.head(number) for number in range(len(parts))]

    def of(self, part: int, numbers: Sequence[int]) -> Tensor:
        """Of training rows, one after the other: (M, W)."""
        kept = self.training(part)
        return torch.cat([kept[number] for number in numbers]).to(self._source.device)

    @torch.no_grad()
    def standard(self, part: int) -> Standard:
        """The standard form of what the head of a part makes of its training rows at first."""
        mix, device = self._heads[part].mix, self._source.device
        return Standard.of(mix(states.to(device).float()) for states in self.training(part))

    def training(self, part: int) -> list[Tensor]:
        """Return what the head of a part reads of each of its training rows: (k, W) each."""
        if not self._train:
            self._train = [self._read(n, p.rows) for n, p in enumerate(self._parts)]
        return self._train[part]

    def held_out(self, part: int) -> list[Tensor]:
        """Return what the head of a part reads of each held-out row, once it has predicted."""
        return self._dev[part]

    @torch.inference_mode()
    def predictions(self, part: int, model: FineTuned) -> list[Prediction]:
        """The answers of a model to the examples that are held out."""
        own = self._parts[part]
        if not self._dev:
            for each in self._parts:
                self._dev_rows.append(each.answering.rows(model.maker, each.dev))
            self._dev = [self._read(n, rows) for n, rows in enumerate(self._dev_rows)]
        rows = self._dev_rows[part]
        outputs: list[Floats] = []
        for start in range(0, len(rows), 256):
            some = self._dev[part][start : start + 256]
            sizes = [len(states) for states in some]
            states = torch.cat(some).to(self._source.device)
            found = model.net.head.answer(states.float(), sizes).cpu().numpy()
            outputs += np.split(found, np.cumsum(sizes)[:-1])
        return own.answering.predictions(rows, outputs, own.dev)

    @torch.inference_mode()
    def _read(self, part: int, rows: Sequence[TaskRow]) -> list[Tensor]:
        """What the head of a part reads of each row, in its order: (k, W) each."""
        head, places = self._heads[part], self._parts[part].task.answer.reads == "places"
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        segments = [row.segments or [] for row in rows]
        segmented = bool(rows) and rows[0].segments is not None
        for batch in read_batches(
            [row.pieces for row in rows],
            self._source.tokenizer.specials.pad,
            self._source.device,
            segments if segmented else None,
            documents=documents_of(rows),
        ):
            numbers: list[int] = batch.numbers.tolist()
            length, document = batch.pieces.shape[1], batch.coordinates.document
            where = flat_places([rows[n] for n in numbers], length) if places else None
            where = None if where is None else where.to(batch.pieces.device)
            wanted = head.places(batch.pieces, document, where)
            states = self._source.states(head.layers, batch, wanted)
            read = head.read(states, document).to("cpu", self._type)
            sizes = [len(rows[n].places) if places else 1 for n in numbers]
            for number, own in zip(numbers, read.split(sizes), strict=True):
                found[number] = own.clone()
        return found


def _seeing_as(recipe: Recipe, source: TextModel) -> TextModel:
    """A model whose places see what those of a recipe do, which may be less than they did: the
    other text of a pair that is read apart."""
    model = source.model
    if recipe.encoder.visibility == model.recipe.encoder.visibility:
        return source
    own = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    bare = recipe.model_copy(update=BARE)
    seeing = filled(bare, model.vocabulary_size, own, recipe.name)
    return TextModel(seeing, source.tokenizer, source.precision)
