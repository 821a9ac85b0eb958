"""Every method makes a smaller model of a fine-tuned one, for the same task."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertwright.compression import compress as compress_module
from bertwright.compression.compress import (
    CompressionResult,
    compress,
    num_parameters,
    sparsity,
)
from bertwright.compression.method import METHODS_PACKAGE, CompressionMethod, resource_names
from bertwright.compression.quantization.sharpness import block_sharpness
from bertwright.compression.vocabulary.static_embeddings import static_embedding_model
from bertwright.core.errors import UserError
from bertwright.core.rng import sample
from bertwright.interop.loading import load
from bertwright.models.text_model import TextModel
from bertwright.tasks.adapters.quantization import Quantization
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from full_suite import full_except
from small_tasks import classes, questions, tagged

CLASSES = table_task("colours", Columns())
TAGS = tagging_task("colours")
QUICK = {
    "learning_rate": 3e-3,
    "dropout": 0.0,
    "compile": False,
    "batch_size": 8,
    "calibrate": False,
}


@pytest.fixture(scope="module")
def teachers(pretrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of teachers, which are fine-tuned once."""
    folder = tmp_path_factory.mktemp("teachers")
    model = pretrained("bert", "encoder.depth.layers=4")
    for name, (task, examples) in {
        "classes": (CLASSES, classes()),
        "tags": (TAGS, tagged()),
    }.items():
        data = {"train": examples, "dev": examples}
        finetune(model, task, **data, epochs=4, output=folder / name, **QUICK)
    return folder


@pytest.fixture
def teacher(teachers: Path) -> FineTunedModel:
    return load_fine_tuned_model(teachers / "classes")


def data_of(teacher: FineTunedModel, examples=None) -> TaskData:
    examples = examples or classes()
    return TaskData(teacher.task, train=examples, dev=examples)


def test_the_student_augments_texts_unless_another_model_is_stated(
    pretrained, teacher: FineTunedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recorded(Exception):
        pass

    def record(*inputs: Any) -> None:
        augmenters.append(inputs[4])
        raise Recorded

    monkeypatch.setattr(compress_module, "TransferSets", record)
    augmenters: list[Any] = []
    student, other = pretrained(), pretrained()
    for augmenter in (None, other):
        with pytest.raises(Recorded):
            compress(
                teacher, "tiny-augmented", data_of(teacher), student=student, augmenter=augmenter
            )
    assert [id(augmenter) for augmenter in augmenters] == [id(student), id(other)]


@pytest.mark.parametrize(
    "name", full_except(resource_names(METHODS_PACKAGE), resource_names(METHODS_PACKAGE)[::2])
)
def test_every_method_leaves_a_smaller_model(
    pretrained, teacher: FineTunedModel, tmp_path: Path, name: str
) -> None:
    settings, config = {**QUICK, "epochs": 1}, CompressionMethod.load(name)
    content = config.model_dump(mode="json", by_alias=True)
    for stage in content["stages"]:
        # A toy model has few heads, and few texts have few copies.
        for term in stage["losses"]:
            term |= {"heads": 2} if term["kind"] == "relations" else {}
        if stage["augmentation"] is not None:
            stage["augmentation"]["num_copies"] = 2
    method = tmp_path / "method.yaml"
    method.write_text(json.dumps(content))
    layers = None if config.keep_all_layers or config.student else 2
    compressed = compress(
        teacher,
        str(method),
        data_of(teacher),
        augmenter=pretrained(),
        layers=layers,
        with_baseline=True,
        output=tmp_path / "s",
        settings=settings,
    )
    student = load(tmp_path / "s")
    assert isinstance(student, FineTunedModel)
    assert len(student.task_model.encoder.blocks) == (1 if config.student else layers or 4)
    text = "a red bird is old"
    assert student.predict([text]) == compressed.best.model.predict([text])
    result = compressed.as_dict()
    assert result == json.loads((tmp_path / "s" / "compression.json").read_text())
    assert result["parameters"] == sum(p.numel() for p in student.task_model.parameters())
    # A student of a full recipe is larger than a toy teacher.
    keeps_size = config.student or config.stages[0].settings.get("adaptation")
    assert result["compression_ratio"] > 1 or keeps_size
    assert len(result["baseline_scores"]) == len(result["scores"]) == 1
    assert result["mean"] == result["scores"][0]
    assert result["retention"] == pytest.approx(100 * result["mean"] / result["teacher_score"])
    assert result["lead_over_baseline"] == result["mean"] - result["baseline_scores"][0]
    assert result["lead_interval"] is None
    num_teacher, num_student = (
        sum(p.numel() for p in model.task_model.parameters()) for model in (teacher, student)
    )
    assert result["compression_ratio"] == num_teacher / num_student


@pytest.mark.parametrize("name", ["tiny-task", "heads-units-iterative", "albert-share"])
def test_an_interrupted_run_resumes_after_its_last_stage(
    teacher: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    results: list[FineTuningResult] = []

    def counting(*args: Any, **settings: Any) -> FineTuningResult:
        results.append(finetune(*args, **settings))
        return results[-1]

    def interrupted(*args: Any, **settings: Any) -> FineTuningResult:
        if results:
            raise KeyboardInterrupt
        return counting(*args, **settings)

    def weights(**arguments: Any) -> dict[str, torch.Tensor]:
        settings = {**QUICK, "epochs": 1, "seed": 3}
        result = compress(teacher, name, data_of(teacher), settings=settings, **arguments)
        return result.best.model.task_model.state_dict()

    expected = weights()
    monkeypatch.setattr(compress_module, "finetune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        weights(work_folder=tmp_path / "work")
    monkeypatch.setattr(compress_module, "finetune", counting)
    resumed = weights(work_folder=tmp_path / "work")
    assert len(results) == len(CompressionMethod.load(name).stages) == 2
    for tensor, other in zip(expected.values(), resumed.values(), strict=True):
        assert torch.equal(tensor, other)
    (folder,) = (tmp_path / "work").glob("student-*")
    assert isinstance(load(folder), FineTunedModel)
    results.clear()
    with pytest.raises(UserError, match=r"task.json is not a writable folder"):
        weights(work_folder=folder / "task.json")
    assert not results


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("heads-units-iterative", {}),
        pytest.param("qbert-mixed", {}, marks=pytest.mark.full),
        # Users override the bits that the method selects.
        ("qbert-mixed", {"adaptation": {"kind": "quantised", "bits": (2, 3, 4, 5)}}),
    ],
)
def test_the_baseline_has_the_size_of_the_student(
    teacher: FineTunedModel, monkeypatch: pytest.MonkeyPatch, name: str, changes: dict[str, Any]
) -> None:
    results: list[FineTuningResult] = []

    def recording(*args: Any, **settings: Any) -> FineTuningResult:
        results.append(finetune(*args, **settings))
        return results[-1]

    monkeypatch.setattr(compress_module, "finetune", recording)
    settings = {**QUICK, "epochs": 1, **changes}
    compress(teacher, name, data_of(teacher), with_baseline=True, settings=settings)
    distilled, baseline = results[: len(results) // 2], results[len(results) // 2 :]
    for one, other in zip(distilled, baseline, strict=True):
        assert one.run.model.adaptation == other.run.model.adaptation
        assert num_parameters(one.model) == num_parameters(other.model)
        assert other.run.distillation_loss is None


def test_users_override_the_settings_of_a_stage(teacher: FineTunedModel, tmp_path: Path) -> None:
    head = {"kind": "dense", "pooling": "mean"}
    stages = [{"settings": {"max_length": 16, "head": head}}]
    method = tmp_path / "method.yaml"
    method.write_text(json.dumps({"description": "a trial", "source": "us", "stages": stages}))
    settings = {**QUICK, "epochs": 0}
    lengths = [teacher.example_encoder.max_length]
    for override in ({}, {"max_length": 12}):
        result = compress(teacher, str(method), data_of(teacher), settings={**settings, **override})
        assert result.best.model.task_model.head_config.pooling == "mean"
        lengths.append(result.best.model.example_encoder.max_length)
    assert lengths[1:] == [16, 12]
    assert lengths[0] > 16


def test_activation_quantization_can_be_trained_again(
    teacher: FineTunedModel, tmp_path: Path
) -> None:
    adaptation = {"kind": "quantised", "activations": {}}
    stages = [{"settings": {"adaptation": {**adaptation, "bits": bits}}} for bits in (8, 4)]
    method = tmp_path / "method.yaml"
    method.write_text(json.dumps({"description": "a trial", "source": "us", "stages": stages}))
    result = compress(teacher, str(method), data_of(teacher), settings={**QUICK, "epochs": 1})
    assert 4 in {grid.bits for grid in result.best.model.task_model.grids.values()}


def test_teacher_and_student_are_scored_alike(pretrained) -> None:
    task = Task("spans", OutputType.parse({"kind": "span", "unanswerable": True}))
    data = {"train": questions(), "dev": questions(), "epochs": 1, **QUICK}
    teacher = finetune(pretrained("bert"), task, **data).model
    plain = compress(teacher, "layer-drop", data_of(teacher, questions()), settings=QUICK)
    output_type = teacher.task.output_type.model_copy(
        update={"threshold": -1e9, "is_threshold_fitted": True}
    )
    teacher.task = replace(teacher.task, output_type=output_type)
    teacher.output_decoder = output_type.build_decoder((), 1.0)
    fitted = compress(teacher, "layer-drop", data_of(teacher, questions()), settings=QUICK)
    assert fitted.teacher_score == plain.teacher_score != evaluate(teacher, questions())["score"]


def untrained(pretrained, *changes: str, head: dict[str, str] | None = None) -> FineTunedModel:
    model, data = pretrained("bert", *changes), {"train": classes(), "dev": classes()}
    return finetune(model, CLASSES, **data, epochs=0, compile=False, head=head).model


def result_of(
    teacher: FineTunedModel, student: FineTunedModel, teacher_score: float, *baseline: float
) -> CompressionResult:
    """Return a result with three students of scores 0.5, 1.0 and 0.75."""
    best = [SimpleNamespace(score=score) for score in (0.5, 1.0, 0.75)]
    runs = [SimpleNamespace(best=b, model=student, task=CLASSES, metric="accuracy") for b in best]
    return CompressionResult("trial", teacher, teacher_score, runs, baseline, 9.0)  # type: ignore[arg-type]


def test_a_result_compares_scores_parameters_and_bytes(pretrained) -> None:
    teacher, student = (untrained(pretrained, f"encoder.depth.layers={n}") for n in (4, 1))
    compressed = result_of(teacher, student, 0.8)
    result = compressed.as_dict()
    assert compressed.best is compressed.runs[1]
    assert (result["scores"], result["mean"]) == ([0.5, 1.0, 0.75], 0.75)
    assert result["retention"] == pytest.approx(93.75)
    assert [round(bound, 3) for bound in result["interval"]] == [0.129, 1.371]
    encoder = student.task_model.encoder
    tables = sum(p.numel() for p in encoder.embeddings.parameters())
    block = sum(p.numel() for p in encoder.blocks[0].parameters())
    rest = sum(p.numel() for p in student.task_model.parameters()) - tables
    assert result["parameters"] == tables + rest
    assert result["parameters_without_embeddings"] == rest
    assert result["compression_ratio"] == 1 + 3 * block / (tables + rest)
    assert result["compression_ratio_without_embeddings"] == 1 + 3 * block / rest
    assert result["bytes"] == 4 * (tables + rest)
    assert result["compression_ratio_bytes"] == result["compression_ratio"]
    assert (result["sparsity"], result["seconds"]) == (0.0, 9.0)
    assert "baseline_scores" not in result
    lead = result_of(teacher, student, 0.8, 0.25, 0.5, 0.5).as_dict()
    assert lead["baseline_scores"] == [0.25, 0.5, 0.5]
    assert lead["lead_over_baseline"] == pytest.approx(1 / 3)
    assert [round(bound, 3) for bound in lead["lead_interval"]] == [-0.025, 0.692]
    # A score such as the negative mean squared error retains nothing that a percentage could say.
    for score in (0.0, -0.5):
        assert result_of(teacher, student, score).as_dict()["retention"] is None
    matrices = [p for p in encoder.blocks[0].parameters() if p.ndim == 2]
    largest = max(matrices, key=lambda matrix: matrix.numel())
    largest.data[: len(largest) // 2] = 0
    zeros, total = largest.numel() / 2, sum(matrix.numel() for matrix in matrices)
    assert result_of(teacher, student, 0.8).as_dict()["sparsity"] == zeros / total
    assert sparsity(untrained(pretrained, "encoder.depth={kind: none}")) == 0


@pytest.mark.parametrize("name", ["layer-drop", "tiny-task"])
def test_seeds_are_counted_from_the_first_and_the_baseline_trains_as_long(
    pretrained, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    teacher = untrained(pretrained, head={"kind": "dense", "pooling": "mean"})
    calls: list[dict[str, Any]] = []

    def record(student: TextModel, task: Task, **settings: Any) -> FineTuningResult:
        calls.append(settings)
        run = {"train": classes()[:2], "dev": classes()[:2], "epochs": 0, "compile": False}
        return finetune(student, task, **run, seed=settings["seed"])

    monkeypatch.setattr(compress_module, "finetune", record)
    stages = CompressionMethod.load(name).stages
    few = TaskData(CLASSES, train=classes()[:2], dev=classes()[:2])
    settings = {"seed": 5, "compile": False}
    result = compress(teacher, name, few, seeds=2, layers=1, with_baseline=True, settings=settings)
    distilled, baseline = calls[: 2 * len(stages)], calls[2 * len(stages) :]
    assert [call["seed"] for call in distilled] == [s for s in (5, 6) for _ in stages]
    assert [call["seed"] for call in baseline] == [5, 6]
    assert len(result.scores) == len(result.baseline_scores) == 2
    epochs = [FineTuningConfig.from_settings(stage.settings).epochs for stage in stages]
    assert [call["epochs"] for call in baseline] == [sum(epochs)] * 2
    assert all("distillation" not in call for call in baseline)
    # Layers of the teacher keep its head, and other students have one of their own.
    assert all(call["head"].pooling == "mean" for call in calls)
    calls.clear()
    compress(teacher, name, few, student=pretrained(), layers=1, settings=settings)
    assert len(calls) == len(stages)
    assert not any("head" in call for call in calls)


def test_sparsity_is_reported(teacher: FineTunedModel, tmp_path: Path) -> None:
    stages = [{"settings": {"adaptation": {"kind": "magnitude", "density": 0.3}}}]
    method = {"description": "a trial", "source": "us", "keep_all_layers": True, "stages": stages}
    (tmp_path / "method.yaml").write_text(json.dumps(method))
    settings = {**QUICK, "epochs": 1}
    for name, fraction in ((str(tmp_path / "method.yaml"), 0.7), ("layer-drop", 0.0)):
        result = compress(teacher, name, data_of(teacher), settings=settings).as_dict()
        assert result["sparsity"] == pytest.approx(fraction, abs=0.01)


def test_a_student_of_another_kind_learns_from_unlabelled_texts(pretrained, teachers: Path) -> None:
    teacher = load_fine_tuned_model(teachers / "tags")
    student = pretrained("elmo")
    unlabelled = [type(example)(example.words[:4]) for example in tagged()]
    result = compress(
        teacher,
        "pre-trained-distillation",
        data_of(teacher, tagged()),
        student=student,
        unlabelled=unlabelled,
        settings={**QUICK, "epochs": 1},
    )
    assert result.best.model.task_model.recipe.name == student.model.recipe.name


def test_the_same_seed_gives_the_same_student(teacher: FineTunedModel) -> None:
    first, second = (
        compress(teacher, "pkd-skip", data_of(teacher), settings={**QUICK, "seed": 3})
        for _ in range(2)
    )
    texts = ["a red bird is old", "the new house"]
    assert first.best.model.predict(texts) == second.best.model.predict(texts)


def test_fewer_bits_are_fewer_bytes_and_can_be_compressed_again(
    teacher: FineTunedModel, tmp_path: Path
) -> None:
    settings = {**QUICK, "epochs": 1}
    small = compress(teacher, "q8-qat", data_of(teacher), settings=settings, output=tmp_path / "q")
    result, file = small.as_dict(), tmp_path / "q" / "model.safetensors"
    header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    assert result["bytes"] == file.stat().st_size - header
    assert 3 < result["compression_ratio_bytes"] < 4
    bits = {"adaptation": {"kind": "quantised", "bits": (2, 3, 4, 5)}}
    mixed = compress(teacher, "qbert-mixed", data_of(teacher), settings=settings | bits)
    assert {grid.bits for grid in mixed.best.model.task_model.grids.values()} == {2, 3, 4, 5, 8}
    assert mixed.as_dict()["bytes"] < result["bytes"]
    shorter = compress(small.best.model, "layer-drop", data_of(teacher), settings=settings)
    assert shorter.as_dict()["compression_ratio_bytes"] < 1


def test_the_sharpest_blocks_have_more_bits(teacher: FineTunedModel) -> None:
    settings = {**QUICK, "epochs": 1}
    small = compress(teacher, "qbert-mixed", data_of(teacher), settings=settings).best.model
    adaptation = small.task_model.adaptation
    assert isinstance(adaptation, Quantization)
    assert sorted(adaptation.bits) == [2, 2, 3, 3]
    # Subsets depend on the order of the examples.
    sharpness = block_sharpness(teacher, sample(classes(), len(classes())))
    sharpest = {s.block for s in sorted(sharpness, key=lambda s: -s.omega)[:2]}
    assert {block for block, bits in enumerate(adaptation.bits) if bits == 3} == sharpest


def test_layers_of_a_teacher_keep_its_head(pretrained) -> None:
    data = {"train": classes(), "dev": classes(), "epochs": 1, **QUICK}
    model = pretrained("electra", "encoder.depth.layers=2")
    for head in (None, {"kind": "dense", "pooling": "mean"}):
        teacher = finetune(model, CLASSES, **data, head=head).model
        for method in ("theseus-linear", "layer-drop"):
            settings = {**QUICK, "epochs": 1}
            small = compress(teacher, method, data_of(teacher), settings=settings).best.model
            assert small.task_model.head_config == teacher.task_model.head_config


def test_invalid_methods_are_refused(teacher: FineTunedModel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no method 'pkd-skp': did you mean 'pkd-skip'"):
        compress(teacher, "pkd-skp", data_of(teacher))
    file = tmp_path / "method.yaml"
    head = "description: a\nsource: b\nstages: "
    for stages, message in [
        ("[{losses: [{kind: sates}]}]", "'sates'"),
        ("[{replacement_probability: 1, losses: [outputs]}]", "trains on labels alone"),
        ("[{objective_weight: 0}]", "weighs the labels against losses, and there are none"),
        ("[{settings: {seeds: 2}}]", "leave seed and seeds out"),
        ("[{}, {mixed_precision: {low_bits: 2}}]", "mixed_precision needs quantized weights"),
    ]:
        file.write_text(f"{head}{stages}\n")
        with pytest.raises(UserError, match=message):
            compress(teacher, str(file), data_of(teacher))
    with pytest.raises(UserError, match="does not use the texts of --unlabelled: leave it out"):
        compress(teacher, "pkd-skip", data_of(teacher), unlabelled=classes())
    with pytest.raises(UserError, match="set --seeds, and not seeds="):
        compress(teacher, "layer-drop", data_of(teacher), settings={"seeds": 2})
    with pytest.raises(UserError, match="5 of 4 layers"):
        compress(teacher, "layer-drop", data_of(teacher), layers=5)
    for name, key in (
        ("heads-units-iterative", "structured_pruning"),
        ("qbert-mixed", "mixed_precision"),
    ):
        with pytest.raises(UserError, match=f"{key} needs .*leave --student and --layers out"):
            compress(teacher, name, data_of(teacher), layers=2)
    other = [Example(e.text, label=f"so {e.label}") for e in classes()]
    with pytest.raises(UserError, match="has no label"):
        compress(teacher, "layer-drop", data_of(teacher, other))


def test_incompatible_methods_are_refused_before_the_teacher_runs(
    pretrained, teacher: FineTunedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("the teacher ran")

    monkeypatch.setattr(FineTunedModel, "head_outputs", refuse)
    monkeypatch.setattr(FineTunedModel, "predict", refuse)

    def method(name: str, *stages: dict[str, Any]) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({"description": "a", "source": "b", "stages": stages}))
        return str(path)

    late = method(
        "late",
        {"examples": "unlabelled", "objective_weight": 0, "losses": [{"kind": "outputs"}]},
        {"losses": [{"kind": "states", "layers": {"pairs": "2-5"}}]},
    )
    adaptations = {"kind": "magnitude", "density": 1e-4}, {"kind": "quantised", "bits": [8, 4, 2]}
    empty, many = (
        method(adaptation["kind"], {}, {"settings": {"adaptation": adaptation}})
        for adaptation in adaptations
    )
    embeddings = method("below", {"losses": [{"kind": "attention", "layers": {"pairs": "0-0"}}]})
    table = static_embedding_model(pretrained("bert"), 8)
    for name, arguments, message in [
        (late, {}, "no layers 2 and 5: the student has 2, the teacher 4"),
        (empty, {}, "a final density of 0.0001 leaves none of the"),
        (many, {}, "3 numbers for 2 blocks"),
        (embeddings, {}, "the embeddings, has no attention"),
        ("relations", {"student": table}, "without blocks has no queries"),
        ("pkd-skip", {"layers": 1}, "a student with 1 layer leaves no layer pair"),
        ("theseus-linear", {"layers": 3}, "4 blocks cannot be divided by 3"),
        ("theseus-linear", {"student": pretrained("bert")}, "with the teacher's embeddings"),
        ("layer-drop", {"student": "bert-tiny", "layers": 1}, "has the layers of its recipe"),
        ("albert-share", {"student": "bert-tiny"}, "leave the recipe bert-tiny out"),
    ]:
        with pytest.raises(UserError, match=message):
            compress(teacher, name, data_of(teacher), **arguments)


def test_static_embeddings_have_no_layers(pretrained, teacher: FineTunedModel) -> None:
    table = static_embedding_model(pretrained("bert"), 8)
    with pytest.raises(UserError, match="the model has no layers to keep"):
        compress(teacher, "pkd-skip", data_of(teacher), student=table, layers=1)
    tuned = finetune(table, CLASSES, train=classes(), dev=classes(), epochs=1, **QUICK).model
    with pytest.raises(UserError, match="the model has no layers to keep"):
        compress(tuned, "pkd-skip", data_of(tuned))
    with pytest.raises(UserError, match="the model has no blocks to compress"):
        compress(tuned, "heads-units-iterative", data_of(tuned))
