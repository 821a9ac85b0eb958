"""What could be shipped: a shape of the model in a form. How large and how fast it is, is known
before anything is trained, because neither depends on what is learned."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median

from bertwright.bench.artefacts.answering import rows_of
from bertwright.interop.loading import load
from bertwright.shipping.forms import Form, shipped_bytes
from bertwright.shipping.goal import Goal
from bertwright.shipping.shapes import Shape, blank, whole
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.origins import answering_sums, of_examples

ANSWERS, WARMING = 30, 5
"""How often one is timed, behind so many that are not."""


@dataclass(frozen=True)
class Candidate:
    """A shape in a form, and what is known of it: its ``bytes``, and the ``milliseconds`` of an
    answer to what the goal asks for, None where it asks for none or the bytes are too many."""

    shape: Shape
    form: Form
    bytes: int
    milliseconds: float | None

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.shape.name}, {self.form.name}"

    @property
    def told(self) -> str:
        """How large and how fast it is."""
        size, taken = f"{self.bytes / 1e6:.4g} MB", self.milliseconds
        return size if taken is None else f"{size}, {taken:.2f} ms"


class Candidates:
    """Those of a model for a goal, each measured when it is first asked for; ``examples`` are those
    of training. They stand in a folder in ``work``, and those that are there are not made again."""

    def __init__(
        self,
        model: FineTuned,
        goal: Goal,
        examples: Examples,
        work: Path,
        say: Callable[[str], None],
    ) -> None:
        self._model, self._whole = model, whole(model)
        self._goal, self._examples, self._say = goal, examples, say
        of = " ".join([*answering_sums(model), of_examples(examples)])
        self._folder = work / f"candidates-{sha256(of.encode()).hexdigest()[:12]}"
        self._known: dict[tuple[Shape, Form], Candidate] = {}
        self._taken: dict[tuple[Shape, str], float] = {}

    @property
    def known(self) -> list[Candidate]:
        """Those that were measured, in the order in which they were."""
        return list(self._known.values())

    def at(self, shape: Shape, form: Form) -> Candidate:
        """That of a shape in a form.

        Errors: UserError where there is none.
        """
        if (shape, form) not in self._known:
            size, taken = self._bytes(shape, form), None
            if self._goal.milliseconds is not None and self._goal.keeps(size, None):
                taken = self._milliseconds(shape, form)
            found = Candidate(shape, form, size, taken)
            self._say(f"{found.name}: {found.told}")
            self._known[shape, form] = found
        return self._known[shape, form]

    def folder(self, shape: Shape, form: Form) -> Path:
        """Where it stands."""
        pieces = "needed" if form.trimmed else "all"
        folder = self._folder / f"{shape.layers}-{shape.share}-{form.kind}-{pieces}"
        if not folder.exists():
            form.write(blank(self._model, shape), self._examples, folder)
        return folder

    # Pieces are as large, and take as long, whatever shape reads them.

    def _bytes(self, shape: Shape, form: Form) -> int:
        if form.trimmed and shape != self._whole:
            before, after = (self._bytes(self._whole, own) for own in (form.untrimmed, form))
            return self._bytes(shape, form.untrimmed) - (before - after)
        return shipped_bytes(self.folder(shape, form))

    def _milliseconds(self, shape: Shape, form: Form) -> float:
        known = self._taken.get((shape, form.kind))
        if known is None:
            known = milliseconds(self.folder(shape, form.untrimmed), self._goal)
            self._taken[shape, form.kind] = known
        return known


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
