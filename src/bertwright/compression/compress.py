"""Compress a fine-tuned model with a compression method."""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.compression.distillation.transfer import TransferSets
from bertwright.compression.initial_student import (
    require_compatible,
    require_unlabelled_used,
    student_factory,
)
from bertwright.compression.method import CompressionMethod, CompressionStage
from bertwright.core.errors import UserError
from bertwright.core.files import require_creatable, require_new_folder
from bertwright.core.statistics import estimate, paired_difference
from bertwright.models.quantized_weights import num_stored_bytes
from bertwright.models.text_model import TextModel
from bertwright.recipes.loading import merge
from bertwright.tasks.adapters.lora import matrix_names
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel, is_fine_tuned, load_fine_tuned_model
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.finetuning.run import ReporterFactory, no_reporter
from bertwright.tasks.formats.examples import Examples, TaskExample
from bertwright.tasks.heads.kinds import PoolerHeadConfig
from bertwright.tasks.provenance import examples_checksum, prediction_fingerprint, provenance
from bertwright.tasks.task import Task


@dataclass(frozen=True)
class CompressionResult:
    """The scores of a teacher and its students.

    ``runs`` has one student per seed. ``baseline_scores`` are the scores of the same student
    trained only on the labels, for as many epochs; () without a baseline.
    """

    method: str
    teacher: FineTunedModel
    teacher_score: float
    runs: Sequence[FineTuningResult]
    baseline_scores: Sequence[float]
    seconds: float

    @property
    def best(self) -> FineTuningResult:
        """The run with the best score."""
        return max(self.runs, key=lambda run: run.best.score)

    @property
    def scores(self) -> list[float]:
        """The scores of the students by seed."""
        return [run.best.score for run in self.runs]

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``compress distil --json``."""
        scores = self.scores
        score = estimate(scores)
        teacher, student = self.teacher, self.best.model
        before, after = num_parameters(teacher), num_parameters(student)
        teacher_bytes, student_bytes = (
            num_stored_bytes(m.task_model, m.task_model.grids) for m in (teacher, student)
        )
        name = "without_embeddings"
        result: dict[str, Any] = {
            "method": self.method,
            "task": self.best.task.name,
            "metric": self.best.metric,
            "teacher_score": self.teacher_score,
            "scores": scores,
            "mean": score.mean,
            "interval": score.interval,
            "retention": 100 * score.mean / self.teacher_score if self.teacher_score > 0 else None,
            "parameters": after["all"],
            "parameters_without_embeddings": after[name],
            "compression_ratio": before["all"] / after["all"],
            "compression_ratio_without_embeddings": before[name] / after[name],
            "bytes": student_bytes,
            "compression_ratio_bytes": teacher_bytes / student_bytes,
            "sparsity": sparsity(student),
            "seconds": self.seconds,
        }
        if self.baseline_scores:
            result["baseline_scores"] = list(self.baseline_scores)
            lead = paired_difference(scores, self.baseline_scores)
            result["lead_over_baseline"] = lead.mean
            result["lead_interval"] = lead.interval
        return result


def compress(
    teacher: FineTunedModel,
    method: str,
    data: TaskData,
    *,
    student: TextModel | str | None = None,
    layers: int | None = None,
    unlabelled: Iterable[TaskExample] | None = None,
    augmenter: TextModel | None = None,
    work_folder: Path | None = None,
    seeds: int = 1,
    with_baseline: bool = False,
    output: Path | None = None,
    make_reporter: ReporterFactory = no_reporter,
    settings: Mapping[str, Any] | None = None,
) -> CompressionResult:
    """Train a small model for the task of a fine-tuned model.

    Args:
        teacher: the fine-tuned model.
        method: name of a method, or path of a method file.
        data: the task and its examples.
        student: a pre-trained model, or the name or file of a recipe, which gets new random weights
            for every seed. With None the student consists of layers of the teacher.
        layers: number of layers of the student. Default: half of the teacher's layers, or all
            layers of another model.
        unlabelled: texts without labels, for methods that use them. They are iterated over more
            than once and may not fit into memory. Default: the texts of the task.
        augmenter: a masked language model, for methods that use one to augment texts. Default: the
            student, if possible.
        work_folder: folder for augmented texts, teacher outputs and the student after each stage
            except the last; an interrupted run resumes from it.
        seeds: number of seeds.
        with_baseline: also train the same student without a teacher.
        output: folder to which the best model is written.
        make_reporter: factory of progress reporters.
        settings: fine-tuning settings for all stages.

    Raises UserError for incompatible arguments.
    """
    start, compression_method = time.monotonic(), CompressionMethod.load(method)
    if "seeds" in (settings or {}):
        raise UserError("compress counts the seeds itself: set --seeds, and not seeds=")
    if next(teacher.task_model.parameters(), None) is None:
        raise UserError(
            "an ONNX graph cannot be the teacher: name the folder that it was exported from"
        )
    if output is not None:
        require_new_folder(output)
    if work_folder is not None:
        require_creatable(work_folder / "student")
    head = {} if student or compression_method.student else _teacher_head_settings(teacher)
    defaults = {"max_length": teacher.example_encoder.max_length, **head}
    overrides = settings or {}
    first_seed = FineTuningConfig.from_settings(merge(defaults, overrides)).seed
    require_compatible(compression_method, teacher.task_model.recipe.encoder, student, layers)
    if unlabelled is not None:
        require_unlabelled_used(compression_method, student)
    task, train, dev = data.load_splits()
    task = replace(task, output_type=task.output_type.uncalibrated())
    run_seeds = range(first_seed, first_seed + seeds)
    with nullcontext(work_folder) if work_folder else TemporaryDirectory() as folder:
        if augmenter is None and isinstance(student, TextModel):
            augmenter = student
        sets = TransferSets(teacher, train, unlabelled, Path(folder), augmenter, first_seed)
        build_student = student_factory(teacher, student, layers, compression_method, sets)
        for stage in compression_method.stages:
            sets.examples(stage.examples, stage.augmentation)
        run = _CompressionRun(
            compression_method.with_defaults(defaults),
            teacher,
            build_student,
            task,
            sets,
            dev,
            make_reporter,
            overrides,
            Path(folder),
        )
        result = CompressionResult(
            method,
            teacher,
            next(iter(evaluate(_uncalibrated(teacher), dev)["metrics"].values())),
            [run.distil(seed) for seed in run_seeds],
            [run.baseline(seed).best.score for seed in run_seeds] if with_baseline else (),
            time.monotonic() - start,
        )
    if output is not None:
        summary = json.dumps(result.as_dict(), indent=1) + "\n"
        result.best.write(output, {"compression.json": summary})
    return result


def _uncalibrated(teacher: FineTunedModel) -> FineTunedModel:
    """Return the teacher without thresholds and temperatures, which its students do not have."""
    task = replace(teacher.task, output_type=teacher.task.output_type.uncalibrated())
    settings = teacher.example_encoder.max_length, teacher.precision, teacher.temperature
    return FineTunedModel(teacher.task_model, teacher.tokenizer, task, *settings)


def _teacher_head_settings(teacher: FineTunedModel) -> Mapping[str, Any]:
    """Return the head setting of a student that consists of a teacher's layers.

    A pooler head needs no setting: it is the default and starts from random weights.
    """
    head = teacher.task_model.head_config
    return {} if isinstance(head, PoolerHeadConfig) else {"head": head}


def num_parameters(model: FineTunedModel) -> dict[str, int]:
    """Return the number of parameters of a model, with and without its embedding tables."""
    sizes = {name: p.numel() for name, p in model.task_model.named_parameters()}
    tables = sum(n for name, n in sizes.items() if name.startswith("encoder.embeddings."))
    return {"all": sum(sizes.values()), "without_embeddings": sum(sizes.values()) - tables}


def sparsity(model: FineTunedModel) -> float:
    """Return the fraction of zeros in the weight matrices of a model's blocks."""
    encoder = model.task_model.encoder
    parameters = dict(encoder.named_parameters())
    matrices = [parameters[name] for name in matrix_names(encoder, ("attention", "feed_forward"))]
    zeros = sum(int((matrix == 0).sum()) for matrix in matrices)
    return zeros / max(sum(matrix.numel() for matrix in matrices), 1)


@dataclass(frozen=True)
class _CompressionRun:
    """The training of a student by a method, for any seed.

    ``folder`` stores the student after each stage except the last, so an interrupted run resumes.
    """

    method: CompressionMethod
    teacher: FineTunedModel
    build_student: Callable[[int], TextModel]
    task: Task
    transfer_sets: TransferSets
    dev: Examples
    make_reporter: ReporterFactory
    settings: Mapping[str, Any]
    folder: Path

    def distil(self, seed: int) -> FineTuningResult:
        """Train all stages in order; return the result of the last one."""
        *earlier, last = self.method.stages
        student, overrides = self.build_student(seed), {**self.settings, "seed": seed}
        for stage in earlier:
            folder = self._student_folder(student, stage, overrides)
            if not is_fine_tuned(folder):
                self._train_stage(student, stage, overrides).write(folder)
            # Loaded from its folder, so that interrupted and uninterrupted runs continue
            # identically.
            student = load_fine_tuned_model(folder, student.precision)
        return self._train_stage(student, last, overrides)

    def _student_folder(
        self, student: TextModel, stage: CompressionStage, overrides: Mapping[str, Any]
    ) -> Path:
        """Return the folder of the student after a stage; its name has a hash of all inputs."""
        examples = self.transfer_sets.examples(stage.examples, stage.augmentation)
        inputs = {
            "teacher": prediction_fingerprint(self.teacher),
            "stage": stage.model_dump(mode="json", by_alias=True),
            "settings": dict(overrides),
            "texts": examples_checksum(examples),
            **provenance(student, self.transfer_sets.train, self.dev),
        }
        digest = sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()
        return self.folder / f"student-{digest[:12]}"

    def _train_stage(
        self, student: TextModel, stage: CompressionStage, overrides: Mapping[str, Any]
    ) -> FineTuningResult:
        """Train a student for one stage."""
        student, settings = self._prepare_stage(student, stage)
        return finetune(
            student,
            self.task,
            train=self.transfer_sets.examples(stage.examples, stage.augmentation),
            dev=self.dev,
            make_reporter=self.make_reporter,
            distillation=stage.distillation(self.teacher),
            **merge(settings, overrides),
        )

    def _train_baseline(self, student: TextModel, settings: Mapping[str, Any]) -> FineTuningResult:
        """Train a student only on the labels."""
        return finetune(
            student,
            self.task,
            train=self.transfer_sets.train,
            dev=self.dev,
            make_reporter=self.make_reporter,
            **settings,
        )

    def _prepare_stage(
        self, student: TextModel, stage: CompressionStage
    ) -> tuple[TextModel, Mapping[str, Any]]:
        """Return the student and the settings at the start of a stage."""
        student = remove_fake_quantizers(student)
        if stage.structured_pruning is None and stage.mixed_precision is None:
            return student, stage.settings
        assert isinstance(student, FineTunedModel), "require_compatible checked it"
        settings = stage.settings
        if stage.structured_pruning is not None:
            student = stage.structured_pruning.prune(student, self.transfer_sets.train)
        if stage.mixed_precision is not None:
            bits = stage.mixed_precision.bits_by_block(student, self.transfer_sets.train)
            settings = merge(settings, {"adaptation": {"bits": bits}})
        return student, settings

    def baseline(self, seed: int) -> FineTuningResult:
        """Train the student only on the labels, for as many epochs.

        If a stage prunes or chooses bits, the baseline runs the same stages; otherwise it would be
        a different network.
        """
        student, overrides = self.build_student(seed), {**self.settings, "seed": seed}
        stages = self.method.stages
        if any(stage.structured_pruning or stage.mixed_precision for stage in stages):
            for stage in stages[:-1]:
                student, settings = self._prepare_stage(student, stage)
                student = self._train_baseline(student, merge(settings, overrides)).model
            student, settings = self._prepare_stage(student, stages[-1])
            return self._train_baseline(student, merge(settings, overrides))
        stage_settings = [merge(stage.settings, overrides) for stage in stages]
        epochs = sum(FineTuningConfig.from_settings(stage).epochs for stage in stage_settings)
        return self._train_baseline(student, {**stage_settings[-1], "epochs": epochs})
