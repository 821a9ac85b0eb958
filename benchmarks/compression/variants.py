"""Fine-tuned teachers and their compressed variants, as model folders."""

import json
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.compression.plan import ArtefactForm, CompressionPlan, CompressionVariant
from benchmarks.embedding.compare import checkpoint_folder
from bertwright.compression.compress import compress, num_parameters
from bertwright.compression.initial_student import require_compatible
from bertwright.compression.method import CompressionMethod
from bertwright.compression.vocabulary.pruning import prune_vocabulary
from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models.text_model import TextModel
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.timing.artefacts import Artefact

WEIGHTS_FOLDER, GRAPH_FOLDER = "weights", "graph"
"""Subfolders of a model: weights and ONNX graph."""

FORM_FOLDERS: Mapping[ArtefactForm, tuple[str, InferencePrecision | None]] = {
    "float32": (WEIGHTS_FOLDER, "float32"),
    "bf16": (WEIGHTS_FOLDER, "bf16"),
    "int8": (WEIGHTS_FOLDER, "int8"),
    "graph": (GRAPH_FOLDER, "float32"),
    "graph-int8": (GRAPH_FOLDER, None),
}
"""Folder and precision of every form."""


@dataclass(frozen=True)
class VariantBuilder:
    """Builder of the models of a task; models of the first seed are kept if they are timed."""

    plan: CompressionPlan
    task: str
    models_folder: Path

    @property
    def variants(self) -> list[str]:
        """Names of the variants that apply to the task."""
        variants = self.plan.variants.items()
        return [name for name, v in variants if v.tasks is None or self.task in v.tasks]

    @property
    def is_timed(self) -> bool:
        """True if the models of the task are timed."""
        return self.plan.timed_tasks is None or self.task in self.plan.timed_tasks

    def run_name(self, variant: str, seed: int) -> str:
        """Return the name of a run, with a hash of everything that determines it."""
        config, method = self.plan.variants[variant], None
        if config.method is not None:
            method = CompressionMethod.load(config.method).model_dump(mode="json")
        settings = config.model_dump(mode="json", exclude={"tasks"})
        digest = _digest([self._teacher_name(seed), settings, method, seed])
        return f"{self.task}-{variant}-{digest}"

    def artefact(self, variant: str, form: ArtefactForm) -> Artefact:
        """Return the artefact of the first seed."""
        subfolder, precision = FORM_FOLDERS[form]
        return Artefact(self.models_folder / self.run_name(variant, 0) / subfolder, precision)

    def build(self, variant: str, seed: int) -> dict[str, Any]:
        """Compress the teacher (:meth:`train_teacher`) and return the figures of the student.

        They are ``score`` and ``bytes`` of every form, the score of the ``undistilled`` student or
        None, ``parameters``, ``layers``, and ``seconds`` of training.
        """
        config, data = self.plan.variants[variant], self.plan.tasks[self.task].load_examples()
        model, seconds, undistilled = load(self.models_folder / self._teacher_name(seed)), 0.0, None
        assert isinstance(model, FineTunedModel)
        if config.method is not None:
            result = compress(
                model,
                config.method,
                data,
                student=_load_student(config),
                layers=config.num_layers,
                with_baseline=config.with_undistilled,
                settings={**config.settings, "seed": seed},
            )
            model, seconds = result.best.model, result.seconds
            undistilled = result.baseline_scores[0] if result.baseline_scores else None
        _, train, dev = data.load_splits()
        if config.prune_vocabulary:
            model = _prune_vocabulary(model, train)
        kept = self.models_folder / self.run_name(variant, seed)
        with nullcontext(kept) if self.is_timed and seed == 0 else TemporaryDirectory() as folder:
            _write_forms(model, config, Path(folder))
            forms = {form: _evaluate_form(Path(folder), form, dev) for form in config.forms}
        return {
            "forms": forms,
            "undistilled": undistilled,
            "parameters": num_parameters(model)["all"],
            "layers": len(model.model.recipe.encoder.depth.sublayer_orders()),
            "seconds": seconds,
        }

    def train_teacher(self, seed: int) -> None:
        """Fine-tune the teacher with this seed, unless it exists."""
        folder = self.models_folder / self._teacher_name(seed)
        if not folder.is_dir():
            task, train, dev = self.plan.tasks[self.task].load_examples().load_splits()
            settings = self.plan.teacher_settings(self.task, seed)
            model = load(self.plan.encoder or checkpoint_folder())
            finetune(model, task, train=train, dev=dev, output=folder, **settings)

    def _teacher_name(self, seed: int) -> str:
        task = self.plan.tasks[self.task].model_dump(mode="json")
        inputs = [str(self.plan.encoder), task, self.plan.teacher_settings(self.task, seed)]
        return f"{self.task}-teacher-{_digest(inputs)}"


def require_feasible(plan: CompressionPlan) -> None:
    """Raise UserError for a variant whose method does not fit its student or number of layers."""
    encoder = load(plan.encoder or checkpoint_folder()).model.recipe.encoder
    for name, variant in plan.variants.items():
        if variant.method is not None:
            try:
                method, student = CompressionMethod.load(variant.method), _load_student(variant)
                require_compatible(method, encoder, student, variant.num_layers)
            except UserError as error:
                raise UserError(f"variants.{name}: {error}") from error


def _load_student(variant: CompressionVariant) -> TextModel | str | None:
    return (
        load(Path(variant.student))
        if variant.student and Path(variant.student).is_dir()
        else variant.student
    )


def _prune_vocabulary(model: FineTunedModel, examples: Examples) -> FineTunedModel:
    """Return the model without the tokens that no training example uses."""
    small = prune_vocabulary(model, examples=examples)
    assert isinstance(small, FineTunedModel)
    return small


def _write_forms(model: FineTunedModel, variant: CompressionVariant, folder: Path) -> None:
    """Write the subfolders that the forms need."""
    subfolders = {FORM_FOLDERS[form][0] for form in variant.forms}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if WEIGHTS_FOLDER in subfolders:
        model.save(folder / WEIGHTS_FOLDER)
    if GRAPH_FOLDER in subfolders:
        export_onnx(model, folder / GRAPH_FOLDER, int8="graph-int8" in variant.forms)


def _evaluate_form(folder: Path, form: ArtefactForm, dev: Examples) -> dict[str, float]:
    subfolder, precision = FORM_FOLDERS[form]
    artefact = Artefact(folder / subfolder, precision)
    score = evaluate(load(artefact.folder, precision), dev)["score"]
    return {"score": score, "bytes": artefact.num_bytes}


def _digest(values: Any) -> str:
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
