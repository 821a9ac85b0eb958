"""What could be shipped: some of the layers, as weights or as a graph in 8 bits. How large and how
fast each is, is known before anything is trained, because neither depends on what is learned."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from bertwright.bench.artefacts.answering import rows_of
from bertwright.compression.quantisation import unrounded
from bertwright.compression.students import layers_taken, with_layers
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx import export_onnx
from bertwright.model.folder import WEIGHTS
from bertwright.shipping.goal import Goal
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.task_model import TaskModel

Form = Literal["weights", "int8"]
"""As what a model is shipped: its own folder, or an ONNX folder in 8 bits."""

FORMS: tuple[Form, ...] = ("weights", "int8")
"""All of them, what is likely to lose less first."""

ANSWERS, WARMING = 30, 5
"""How often one is timed, behind so many that are not."""


@dataclass(frozen=True)
class Candidate:
    """So many ``layers`` in a form, and what is known of it: ``bytes``, and the ``milliseconds`` of
    an answer to what the goal asks for."""

    layers: int
    form: Form
    bytes: int
    milliseconds: float

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.layers} layers, {'8 bits' if self.form == 'int8' else 'weights'}"


class Candidates:
    """Those of a model for a goal, each measured when it is first asked for; ``folder`` is theirs
    to write in."""

    def __init__(
        self, model: FineTuned, goal: Goal, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._model, self._goal, self._folder, self._say = model, goal, folder, say
        self.depth = len(model.net.encoder.blocks)
        self._known: dict[tuple[int, Form], Candidate] = {}

    @property
    def known(self) -> list[Candidate]:
        """Those that were measured, those that are likely to lose the least first."""
        return [self._known[key] for key in self._all() if key in self._known]

    def at(self, layers: int, form: Form) -> Candidate:
        """That of so many layers."""
        if (layers, form) not in self._known:
            found = self._measured(layers, form, self._folder / f"{layers}-{form}")
            self._say(f"{found.name}: {found.bytes / 1e6:.1f} MB, {found.milliseconds:.2f} ms")
            self._known[layers, form] = found
        return self._known[layers, form]

    def chosen(self) -> Candidate:
        """The first that is small and fast enough: what comes later is smaller.

        Errors: UserError where nothing is.
        """
        whole = self.at(self.depth, "weights")
        if self._keeps(whole):
            return whole
        # More layers are never smaller or faster: what one cannot keep, nothing can, and it takes
        # two of them to know it.
        least = [self.at(1, form) for form in FORMS]
        if not any(map(self._keeps, least)):
            smallest = min(least, key=lambda own: own.bytes)
            fastest = min(least, key=lambda own: own.milliseconds)
            raise UserError(
                f"nothing keeps to the goal: the smallest ({smallest.name}) has "
                f"{smallest.bytes / 1e6:.4g} MB, the fastest ({fastest.name}) takes "
                f"{fastest.milliseconds:.2f} ms: ask for less, or without --goal for a --method of "
                f"few bits or a smaller --student"
            )
        return next(own for own in (self.at(*key) for key in self._all()) if self._keeps(own))

    def _all(self) -> list[tuple[int, Form]]:
        return [(layers, form) for layers in range(self.depth, 0, -1) for form in FORMS]

    def _keeps(self, own: Candidate) -> bool:
        return self._goal.keeps(own.bytes, own.milliseconds)

    def _measured(self, layers: int, form: Form, folder: Path) -> Candidate:
        small = self._model if layers == self.depth else untrained(self._model, layers)
        write(small, form, folder)
        return Candidate(layers, form, shipped_bytes(folder), milliseconds(folder, self._goal))


def untrained(model: FineTuned, layers: int) -> FineTuned:
    """Some of the layers with the head as it is: of the right size, and knowing little."""
    model = unrounded(model)
    known = with_layers(model.model, layers_taken(layers, len(model.net.encoder.blocks)))
    net = TaskModel(known.recipe, known.vocabulary_size, model.net.plan, model.net.adaptation)
    net.encoder.load_state_dict(known.encoder.state_dict())
    net.head.load_state_dict(model.net.head.state_dict())
    length = model.maker.length
    return FineTuned(net, model.tokenizer, model.task, length, model.precision, model.temperature)


def write(model: FineTuned, form: Form, folder: Path) -> None:
    """Write a model as it is shipped."""
    if form == "int8":
        export_onnx(model, folder, int8=True, exact=False)
    else:
        model.save(folder)


def shipped_bytes(folder: Path) -> int:
    """Of the file that is computed with."""
    files = sorted(folder.glob("*.int8.onnx*")) or [folder / WEIGHTS]
    return sum(file.stat().st_size for file in files)


def milliseconds(folder: Path, goal: Goal) -> float:
    """Of an answer to rows as the goal says, from what stands in a folder."""
    model = load(folder)
    assert isinstance(model, FineTuned)
    rows, taken = rows_of(model, goal.rows, goal.length), list[float]()
    for _ in range(WARMING + ANSWERS):
        began = time.perf_counter()
        model.outputs(rows)
        taken.append(time.perf_counter() - began)
    return 1000 * median(taken[WARMING:])
