"""Fine-tuned stock classes and ours give the same outputs, imported or exported."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
import transformers

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.head_types import StockTaskHead
from bertwright.interop.huggingface.importer import import_huggingface, load_huggingface
from bertwright.models.saving import build_empty
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example, ExtractiveQuestion
from bertwright.tasks.formats.squad import SquadReader
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.outputs import MultiLabelOutput, OutputType, SpanOutput
from bertwright.tasks.prediction import predict_file
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec, TaskModel
from stock_models import (
    TOKENIZERS,
    both_lengths,
    random_batch,
    randomise,
    saved,
    stock_model,
    token_info,
)
from toy_recipes import toy


def require_equal_outputs(
    stock: transformers.PreTrainedModel, ours: TaskModel, lengths: tuple[int, ...]
) -> None:
    """Outputs agree for every sequence, or at every real position."""
    ours = ours.cpu()
    token_ids, mask = random_batch(ours.vocab_size, lengths, stock.config.pad_token_id)
    with torch.inference_mode():
        inputs = {"input_ids": token_ids, "attention_mask": mask.long()}
        if ours.head_spec.output_kind == "option":
            inputs = {name: tensor[:, None] for name, tensor in inputs.items()}
        output = stock(**inputs)
        is_span = ours.head_spec.output_kind == "span"
        expected = torch.stack(tuple(output[:2]), -1) if is_span else output.logits
        positions = mask.flatten().nonzero().flatten()
        actual = ours(token_ids, token_info(mask), positions)
    expected = expected[mask] if expected.dim() == 3 else expected
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


THREE = {"id2label": {0: "no", 1: "perhaps", 2: "yes"}}

TOKENS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}

LONG = {"attention_window": 4, "type_vocab_size": 1}

FULL = {"attention_type": "original_full"}

STOCK: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": THREE,
    "BertForTokenClassification": THREE,
    "MobileBertForSequenceClassification": THREE,
    "MobileBertForTokenClassification": THREE,
    "MobileBertForQuestionAnswering": {},
    "MobileBertForMultipleChoice": {"num_labels": 1},
    "RobertaForSequenceClassification": THREE,
    "RobertaForTokenClassification": THREE,
    "ModernBertForSequenceClassification": THREE,
    "ModernBertForTokenClassification": THREE,
    "DistilBertForSequenceClassification": THREE,
    "ElectraForSequenceClassification": THREE,
    "BigBirdForSequenceClassification": {**THREE, **FULL},
    "BigBirdForTokenClassification": {**THREE, **FULL},
    "XLMForSequenceClassification": {**THREE, **TOKENS},
    "XLMForTokenClassification": {**THREE, **TOKENS},
    "XLNetForTokenClassification": {**THREE, **TOKENS},
    "GPT2ForTokenClassification": {**THREE, **TOKENS},
    "LongformerForSequenceClassification": {**THREE, **LONG},
    "LongformerForTokenClassification": {**THREE, **LONG},
    "BertForQuestionAnswering": {},
    "RobertaForQuestionAnswering": {},
    "ModernBertForQuestionAnswering": {},
    "BertForMultipleChoice": {"num_labels": 1},
    "RobertaForMultipleChoice": {"num_labels": 1},
}


@both_lengths
@pytest.mark.parametrize("architecture", STOCK)
def test_an_imported_model_computes_the_same(
    architecture: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    stock = stock_model(architecture, **STOCK[architecture])
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    assert isinstance(ours, FineTunedModel)
    output_types = {"Token": "tags", "Question": "span", "Choice": "option"}
    expected_type = next(
        (output_type for name, output_type in output_types.items() if name in architecture), "class"
    )
    assert ours.task.output_type.kind_name() == expected_type
    assert ours.task.labels == (
        () if expected_type in ("span", "option") else ("no", "perhaps", "yes")
    )
    require_equal_outputs(stock, ours.task_model, lengths)


UNUSED_PART = "pooler"
"""BigBird's task classes have a pooler that they ignore; it is exported as zeros."""


@pytest.mark.parametrize("architecture", STOCK)
def test_an_imported_model_is_exported_unchanged(architecture: str, tmp_path: Path) -> None:
    stock = stock_model(architecture, **STOCK[architecture])
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    export = export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == architecture
    reloaded = type(stock).from_pretrained(tmp_path / "export")
    assert reloaded.config.id2label == stock.config.id2label
    for name, tensor in reloaded.state_dict().items():
        if not (architecture.startswith("BigBird") and UNUSED_PART in name):
            assert torch.equal(tensor, stock.state_dict()[name]), name


@both_lengths
@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("MobileBertForSequenceClassification", THREE),
        ("MobileBertForMultipleChoice", {"num_labels": 1}),
    ],
)
def test_heads_without_a_dense_layer_round_trip(
    architecture: str, changes: dict[str, Any], lengths: tuple[int, ...], tmp_path: Path
) -> None:
    """The released MobileBERT has ``classifier_activation: false``."""
    stock = stock_model(architecture, classifier_activation=False, **changes)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    require_equal_outputs(stock, ours.task_model, lengths)
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    reloaded = type(stock).from_pretrained(tmp_path / "export")
    assert reloaded.config.classifier_activation is False
    for name, tensor in stock.state_dict().items():
        assert torch.equal(reloaded.state_dict()[name], tensor), name


def test_a_released_encoder_without_heads_is_imported(tmp_path: Path) -> None:
    stock = stock_model("MobileBertModel", classifier_activation=False)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    assert ours.pooler is None


@both_lengths
def test_mean_pooling_is_imported(lengths: tuple[int, ...], tmp_path: Path) -> None:
    stock = stock_model("ModernBertForSequenceClassification", classifier_pooling="mean")
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    require_equal_outputs(stock, ours.task_model, lengths)


def test_questions_have_global_attention(tmp_path: Path) -> None:
    stock = stock_model("LongformerForQuestionAnswering", **LONG, bos_token_id=0, sep_token_id=2)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    (sequence,) = ours.output_decoder.encode(
        ours.example_encoder, [ExtractiveQuestion("the", "the the sea")]
    )
    with torch.inference_mode():
        output = stock(torch.tensor([sequence.token_ids]))
    expected = torch.stack((output.start_logits, output.end_logits), -1)[
        0, list(sequence.positions)
    ]
    (actual,) = ours.head_outputs([sequence])
    torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=1e-5, atol=1e-5)
    export = export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "LongformerForQuestionAnswering"
    assert "at all tokens of the first text" in (tmp_path / "export" / "README.md").read_text()


def test_longformer_multiple_choice_round_trips(tmp_path: Path) -> None:
    stock = stock_model("LongformerForMultipleChoice", **LONG, num_labels=1)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    export = export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "LongformerForMultipleChoice"
    reloaded = type(stock).from_pretrained(tmp_path / "export").state_dict()
    assert all(torch.equal(reloaded[name], tensor) for name, tensor in stock.state_dict().items())


def test_the_maximum_length_round_trips(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", **THREE)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    short = FineTunedModel(ours.task_model, ours.tokenizer, ours.task, max_length=16)
    export_huggingface(short, short.tokenizer, tmp_path / "export")
    assert load_huggingface(tmp_path / "export").example_encoder.max_length == 16


def test_a_regression_with_several_numbers_is_refused(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", num_labels=3, problem_type="regression")
    with pytest.raises(UserError, match=r"config\.json: problem_type is regression with 3 labels"):
        load_huggingface(saved(stock, tmp_path / "stock"))


def test_a_single_output_is_a_regression(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", num_labels=1)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    assert (ours.task.output_type.kind_name(), ours.task_model.head_spec.num_outputs) == (
        "number",
        1,
    )
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert type(stock).from_pretrained(tmp_path / "export").config.problem_type == "regression"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("summary_type", "mean"),
        ("summary_activation", "tanh"),
        ("summary_use_proj", False),
        ("summary_proj_to_labels", False),
    ],
)
def test_unsupported_summaries_are_refused(name: str, value: Any, tmp_path: Path) -> None:
    """Except for token classification, whose class has another head."""
    text_classifier = stock_model("XLMForSequenceClassification", **TOKENS)
    with pytest.raises(UserError, match=f"{name} is {value!r}"):
        load_huggingface(saved(text_classifier, tmp_path / "texts", **{name: value}))
    token_classifier = stock_model("XLMForTokenClassification", **TOKENS)
    load_huggingface(saved(token_classifier, tmp_path / "words", **{name: value}))


def test_fine_tuned_folders_are_not_imported_as_encoders(tmp_path: Path) -> None:
    folder = saved(stock_model("BertForTokenClassification"), tmp_path / "stock")
    with pytest.raises(UserError, match="fine-tuned"):
        import_huggingface(folder)


def test_a_text_may_have_several_labels(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", problem_type="multi_label_classification")
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    assert ours.task.output_type.kind_name() == "labels"
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    again = type(stock).from_pretrained(tmp_path / "export")
    assert again.config.problem_type == "multi_label_classification"


def test_a_text_may_have_one_label_or_none(tmp_path: Path) -> None:
    one = {"id2label": {0: "toxic"}, "problem_type": "multi_label_classification"}
    stock = stock_model("BertForSequenceClassification", **one)
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    assert (ours.task.output_type.kind_name(), ours.task.labels) == ("labels", ("toxic",))
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert type(stock).from_pretrained(tmp_path / "export").config.id2label == {0: "toxic"}


@pytest.mark.parametrize("output_type", ["cloze", "similarity"])
def test_output_types_without_a_stock_class_are_refused(output_type: str, tmp_path: Path) -> None:
    ours = fine_tuned("bert", {"kind": "pooler"})
    ours.task = Task("t", OutputType.parse(output_type))
    message = f"no stock class has an output of type {output_type}"
    with pytest.raises(UserError, match=message):
        export_huggingface(ours, ours.tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


OURS = {
    "bert-pooler": ("bert", {"kind": "pooler"}, "BertForSequenceClassification"),
    "bert-dense": ("bert", {"kind": "dense"}, "BertForSequenceClassification"),
    "bert-words": ("bert", {"kind": "plain", "pooling": "positions"}, "BertForTokenClassification"),
    "roberta": ("roberta", {"kind": "dense"}, "RobertaForSequenceClassification"),
    "roberta-words": (
        "roberta",
        {"kind": "plain", "pooling": "positions"},
        "RobertaForTokenClassification",
    ),
    "modern-mean": (
        "modern",
        {"kind": "transform", "pooling": "mean"},
        "ModernBertForSequenceClassification",
    ),
    "modern-first": ("modern", {"kind": "transform"}, "ModernBertForSequenceClassification"),
    "modern-words": (
        "modern",
        {"kind": "transform", "pooling": "positions"},
        "ModernBertForTokenClassification",
    ),
}


def fine_tuned(system: str, head: dict[str, str]) -> FineTunedModel:
    """A fine-tuned model with random parameters."""
    tokenizer = Tokenizer(TOKENIZERS["Roberta" if system == "roberta" else "Bert"]())
    task_model = build_empty(
        TaskModel, toy(system), tokenizer.vocab_size, HeadSpec(HeadConfig.parse(head), 3)
    )
    randomise(task_model)
    is_tagging = head.get("pooling") == "positions"
    task = tagging_task("t") if is_tagging else table_task("t", Columns())
    return FineTunedModel(task_model, tokenizer, replace(task, labels=("no", "perhaps", "yes")))


@both_lengths
@pytest.mark.parametrize("case", OURS)
def test_an_exported_model_computes_the_same(
    case: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    system, head, architecture = OURS[case]
    ours = fine_tuned(system, head)
    export = export_huggingface(ours, ours.tokenizer, tmp_path / "export")
    assert export.architecture == architecture
    stock_class = getattr(transformers, architecture)
    stock, loading = stock_class.from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    require_equal_outputs(stock.eval(), ours.task_model, lengths)


@pytest.mark.parametrize("pairs", [["a bird", "the red fish"], None])
def test_an_imported_classifier_reads_pairs_if_there_are_any(
    pairs: list[str] | None, tmp_path: Path
) -> None:
    ours = fine_tuned(*OURS["bert-pooler"][:2])
    export_huggingface(ours, ours.tokenizer, tmp_path / "export")
    imported = load_huggingface(tmp_path / "export")
    assert isinstance(imported, FineTunedModel)
    columns = {"text": ["the old bird", "a fish"], **({} if pairs is None else {"pair": pairs})}
    rows = list(zip(*columns.values(), strict=True))
    inputs = [row if len(row) > 1 else row[0] for row in rows]
    expected = [prediction.probabilities for prediction in ours.predict(inputs)]
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, tmp_path / "inputs.parquet")
    lines = ["\t".join(row) for row in rows]
    (tmp_path / "inputs.txt").write_text("\n".join(lines))
    (tmp_path / "inputs.tsv").write_text("\n".join(["\t".join(columns), *lines]))
    (tmp_path / "inputs.jsonl").write_text("\n".join(map(json.dumps, table.to_pylist())))
    for suffix in ("txt", "tsv", "jsonl", "parquet"):
        records = predict_file(imported, tmp_path / f"inputs.{suffix}")
        for record, probabilities in zip(records, expected, strict=True):
            assert record["probabilities"] == pytest.approx(probabilities, abs=1e-5), suffix


@pytest.mark.parametrize("temperature", [0.4, 2.5])
@pytest.mark.parametrize("case", ["bert-pooler", "roberta-words", "modern-mean"])
def test_an_exported_model_has_calibrated_probabilities(
    case: str, temperature: float, tmp_path: Path
) -> None:
    uncalibrated = fine_tuned(*OURS[case][:2])
    settings = uncalibrated.tokenizer, uncalibrated.task, None, "float32", temperature
    ours = FineTunedModel(uncalibrated.task_model, *settings)
    before = {name: tensor.clone() for name, tensor in ours.task_model.state_dict().items()}
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    imported = load_huggingface(tmp_path / "export", "float32")
    for expected, actual in zip(ours.predict(TEXTS), imported.predict(TEXTS), strict=True):
        assert actual.value == expected.value
        assert actual.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in ours.task_model.state_dict().items()
    )


TEXTS = ["the ship", "a ship: the ship!", "the"]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8])
def test_the_card_states_a_custom_threshold(
    threshold: float, temperature: float, tmp_path: Path
) -> None:
    default = fine_tuned("bert", {"kind": "pooler"})
    task = Task("t", MultiLabelOutput(threshold=threshold), labels=default.task.labels)
    ours = FineTunedModel(default.task_model, default.tokenizer, task, None, "float32", temperature)
    report = export_huggingface(ours, ours.tokenizer, tmp_path / "export")
    assert report.threshold_note in (tmp_path / "export" / "README.md").read_text()
    assert bool(report.threshold_note) == (threshold != 0.5)
    stated = float(re.findall(r"0\.\d+", report.threshold_note or "0.5")[0])
    for expected, actual in zip(
        ours.predict(TEXTS),
        load_huggingface(tmp_path / "export", "float32").predict(TEXTS),
        strict=True,
    ):
        probabilities = actual.probabilities.items()
        assert expected.value == tuple(
            label for label, probability in probabilities if probability > stated
        )


def test_the_no_answer_threshold_is_stated(tmp_path: Path) -> None:
    stock = stock_model("BertForQuestionAnswering")
    ours = load_huggingface(saved(stock, tmp_path / "stock"), "float32")
    ours.task = Task("t", SpanOutput(unanswerable=True, threshold=-2.5), SquadReader())
    report = export_huggingface(ours, ours.tokenizer, tmp_path / "export")
    assert "exceeds the best answer's by -2.5, not 0" in report.threshold_note


@pytest.mark.parametrize("length", [None, 8, 40])
@pytest.mark.parametrize("case", ["bert-pooler", "modern-mean"])
def test_an_exported_model_truncates_alike(case: str, length: int | None, tmp_path: Path) -> None:
    system, head, _ = OURS[case]
    unlimited = fine_tuned(system, head)
    ours = FineTunedModel(
        unlimited.task_model, unlimited.tokenizer, unlimited.task, length, "float32"
    )
    export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    text = "the ship " * 400
    (sequence,) = ours.example_encoder.encode([Example(text)])
    assert stock(text, truncation=True)["input_ids"] == sequence.token_ids
    config = transformers.AutoConfig.from_pretrained(tmp_path / "export")
    assert config.max_position_embeddings >= len(sequence.token_ids)


@pytest.mark.parametrize(
    ("system", "head", "reason"),
    [
        ("bert", {"kind": "pooler", "pooling": "mean"}, r"head\.pooling is mean \(Bert: first\)"),
        ("bert", {"kind": "plain"}, r"head\.kind is plain \(Bert: pooler\)"),
        (
            "bert",
            {"kind": "dense", "activation": "relu"},
            r"head\.activation is relu \(Bert: tanh\)",
        ),
        ("modern", {"kind": "pooler"}, r"head\.kind is pooler \(ModernBert: transform\)"),
        ("bert", {"kind": "dense", "layers": "1"}, r"head\.layers is 1 \(Bert: last\)"),
        (
            "bert",
            {"kind": "plain", "pooling": "positions", "layers": "all", "mix": "mean"},
            r"head\.layers is all \(Bert: last\)",
        ),
        ("bert", {"kind": "dense", "mix": "learned"}, r"head\.mix is learned \(Bert: none\)"),
    ],
)
def test_heads_without_a_stock_class_are_refused(
    system: str, head: dict[str, str], reason: str, tmp_path: Path
) -> None:
    ours = fine_tuned(system, head)
    with pytest.raises(UserError, match=reason):
        export_huggingface(ours, ours.tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("layers", ["last-1", "2"])
@pytest.mark.parametrize("mix", ["concat", "mean"])
def test_all_names_of_the_last_layer_are_exported(layers: str, mix: str, tmp_path: Path) -> None:
    head = {"kind": "plain", "pooling": "positions", "layers": layers, "mix": mix}
    ours = fine_tuned("bert", head)
    export = export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "BertForTokenClassification"


def test_verification_uses_the_layers_of_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = fine_tuned("bert", {"kind": "dense", "layers": "1"})
    monkeypatch.setattr(StockTaskHead, "mismatches", lambda *_: iter(()))
    with pytest.raises(UserError, match="differs from the model"):
        export_huggingface(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert not (tmp_path / "export").exists()
