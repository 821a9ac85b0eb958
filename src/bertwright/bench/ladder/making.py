"""A model that has learned a task, and what a way makes of it, as folders that can be shipped."""

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.axes import ReadingPrecision
from bertwright.bench.artefacts.comparing import Artefact
from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.ladder.plan import Form, Plan, Way
from bertwright.compression.compressing import compress, num_parameters
from bertwright.compression.method import Method
from bertwright.compression.suiting import require_suiting
from bertwright.compression.trimming import trim
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.writing import export_onnx
from bertwright.model.text_model import TextModel
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Examples

WEIGHTS, GRAPH = "weights", "graph"
"""The folders of a model."""

AS: Mapping[Form, tuple[str, ReadingPrecision | None]] = {
    "float32": (WEIGHTS, "float32"),
    "bf16": (WEIGHTS, "bf16"),
    "int8": (WEIGHTS, "int8"),
    "graph": (GRAPH, "float32"),
    "graph-int8": (GRAPH, None),
}
"""Which folder a form is computed from, and in which precision."""


@dataclass(frozen=True)
class Maker:
    """What makes the models of a task; those of the first seed stay in ``models`` where they are
    timed."""

    plan: Plan
    task: str
    models: Path

    @property
    def ways(self) -> list[str]:
        """Those that are tried on the task."""
        every = self.plan.ways.items()
        return [name for name, way in every if way.tasks is None or self.task in way.tasks]

    @property
    def is_timed(self) -> bool:
        """Whether its models are timed."""
        return self.plan.timed is None or self.task in self.plan.timed

    def name(self, way: str, seed: int) -> str:
        """Of a run, by what decides it."""
        of, teacher = self.plan.ways[way], self._teacher_name(seed)
        method = None if of.method is None else Method.load(of.method).model_dump(mode="json")
        stated = of.model_dump(mode="json", exclude={"tasks"})
        return f"{self.task}-{way}-{_digest([teacher, stated, method, seed])}"

    def artefact(self, way: str, form: Form) -> Artefact:
        """Of the first seed."""
        room, precision = AS[form]
        return Artefact(self.models / self.name(way, 0) / room, precision)

    def made(self, name: str, seed: int) -> dict[str, Any]:
        """What a way comes to, of a model that has learned the task (:meth:`learn`).

        That is the ``score`` and the ``bytes`` of every form, the score of the same student
        ``alone`` where that was asked, ``parameters``, ``layers``, and ``seconds`` of training.
        """
        way, data = self.plan.ways[name], self.plan.tasks[self.task].examples()
        small, seconds, alone = load(self.models / self._teacher_name(seed)), 0.0, None
        assert isinstance(small, FineTuned)
        if way.method is not None:
            found = compress(
                small,
                way.method,
                data,
                student=_student(way),
                layers=way.layers,
                alone=way.alone,
                settings={**way.settings, "seed": seed},
            )
            small, seconds = found.best.model, found.seconds
            alone = found.alone[0] if found.alone else None
        _, learned, dev = data.parts()
        if way.trimmed:
            small = _trimmed(small, learned)
        kept = self.models / self.name(name, seed)
        with nullcontext(kept) if self.is_timed and seed == 0 else TemporaryDirectory() as place:
            _write(small, way, Path(place))
            forms = {form: _told(Path(place), form, dev) for form in way.forms}
        return {
            "forms": forms,
            "alone": alone,
            "parameters": num_parameters(small)["all"],
            "layers": len(small.model.recipe.encoder.depth.orders()),
            "seconds": seconds,
        }

    def learn(self, seed: int) -> None:
        """Let a model learn the task with this seed: once."""
        folder = self.models / self._teacher_name(seed)
        if not folder.is_dir():
            task, train, dev = self.plan.tasks[self.task].examples().parts()
            settings = self.plan.learning(self.task, seed)
            model = load(self.plan.encoder or checkpoint_folder())
            finetune(model, task, train=train, dev=dev, out=folder, **settings)

    def _teacher_name(self, seed: int) -> str:
        given = self.plan.tasks[self.task].model_dump(mode="json")
        stated = [str(self.plan.encoder), given, self.plan.learning(self.task, seed)]
        return f"{self.task}-learned-{_digest(stated)}"


def require_possible(plan: Plan) -> None:
    """Refuse ways whose layers cannot be taken, or whose teacher cannot teach their student, before
    anything has learned its task: UserError that names the way."""
    encoder = load(plan.encoder or checkpoint_folder()).model.recipe.encoder
    for name, way in plan.ways.items():
        if way.method is not None:
            try:
                require_suiting(Method.load(way.method), encoder, _student(way), way.layers)
            except UserError as error:
                raise UserError(f"ways.{name}: {error}") from error


def _student(way: Way) -> TextModel | str | None:
    return load(Path(way.student)) if way.student and Path(way.student).is_dir() else way.student


def _trimmed(model: FineTuned, examples: Examples) -> FineTuned:
    """Without the pieces that no example to learn from needs: others are cut into smaller ones."""
    small = trim(model, examples=examples)
    assert isinstance(small, FineTuned)
    return small


def _write(model: FineTuned, way: Way, place: Path) -> None:
    """The folders that the forms of a way are computed from, and no others."""
    rooms = {AS[form][0] for form in way.forms}
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if WEIGHTS in rooms:
        model.save(place / WEIGHTS)
    if GRAPH in rooms:
        export_onnx(model, place / GRAPH, int8="graph-int8" in way.forms)


def _told(place: Path, form: Form, dev: Examples) -> dict[str, float]:
    room, precision = AS[form]
    own = Artefact(place / room, precision)
    return {"score": evaluate(load(own.folder, precision), dev)["score"], "bytes": own.bytes}


def _digest(deciding: Any) -> str:
    return sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
