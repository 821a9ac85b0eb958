"""What could be shipped: some of the layers, as weights or as a graph in 8 bits. How large and how
fast each is, is known before anything is trained, because neither depends on what is learned."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from bertwright.bench.artefacts.answering import rows_of
from bertwright.compression.quantisation import unrounded
from bertwright.compression.students import layers_taken, with_layers
from bertwright.interop.loading import load
from bertwright.interop.onnx import export_onnx
from bertwright.model.folder import WEIGHTS
from bertwright.shipping.goal import Goal
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.task_model import TaskModel

Form = Literal["weights", "int8"]
"""As what a model is shipped: its own folder, or an ONNX folder in 8 bits."""

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


def candidates(
    model: FineTuned, goal: Goal, folder: Path, say: Callable[[str], None]
) -> Iterator[Candidate]:
    """All of them, those that are likely to lose the least first; ``folder`` is theirs to write
    in."""
    depth = len(model.net.encoder.blocks)
    for layers in range(depth, 0, -1):
        small = model if layers == depth else untrained(model, layers)
        for form in FORMS:
            found = _measured(small, layers, form, goal, folder / f"{layers}-{form}")
            say(f"{found.name}: {found.bytes / 1e6:.1f} MB, {found.milliseconds:.2f} ms")
            yield found


FORMS: tuple[Form, ...] = ("weights", "int8")


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
        export_onnx(model, folder, int8=True)
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


def _measured(model: FineTuned, layers: int, form: Form, goal: Goal, folder: Path) -> Candidate:
    write(model, form, folder)
    return Candidate(layers, form, shipped_bytes(folder), milliseconds(folder, goal))
