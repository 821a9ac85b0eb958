"""Fine-tuned stock classes and ours give the same answers, whichever of the two came first."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from stock import TOKENIZERS, both_lengths, coordinates, randomise, rows, saved, stock_model

from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder, import_folder, load
from bertwright.interop.huggingface.purposes import Classifier
from bertwright.tasks.answers import Answer, LabelsAnswer, SpanAnswer
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example, Question
from bertwright.tasks.formats.questions import QuestionReader
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel
from bertwright.text.tokenizers import Tokenizer
from recipes_at_toy_size import toy


def same(stock: transformers.PreTrainedModel, ours: TaskModel, lengths: tuple[int, ...]) -> None:
    """The answers agree: one for every row, or one for every real place."""
    ours = ours.cpu()
    pieces, real = rows(ours.vocabulary_size, lengths, stock.config.pad_token_id)
    with torch.inference_mode():
        given = {"input_ids": pieces, "attention_mask": real.long()}
        if ours.plan.answer == "option":
            given = {name: each[:, None] for name, each in given.items()}
        said = stock(**given)
        spans = ours.plan.answer == "span"
        expected = torch.stack(tuple(said[:2]), -1) if spans else said.logits
        where = real.flatten().nonzero().flatten()
        found = ours(pieces, coordinates(real), where)
    expected = expected[real] if expected.dim() == 3 else expected
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


THREE = {"id2label": {0: "no", 1: "perhaps", 2: "yes"}}

TOKENS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}

LONG = {"attention_window": 4, "type_vocab_size": 1}

FULL = {"attention_type": "original_full"}

STOCK: dict[str, dict[str, Any]] = {
    "BertForSequenceClassification": THREE,
    "BertForTokenClassification": THREE,
    "MobileBertForSequenceClassification": THREE,
    "MobileBertForTokenClassification": THREE,
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
def test_an_imported_model_answers_the_same(
    architecture: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    stock = stock_model(architecture, **STOCK[architecture])
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    assert isinstance(ours, FineTuned)
    kinds = {"Token": "tags", "Question": "span", "Choice": "option"}
    kind = next((of for name, of in kinds.items() if name in architecture), "class")
    assert ours.task.answer.name == kind
    assert ours.task.labels == (() if kind in ("span", "option") else ("no", "perhaps", "yes"))
    same(stock, ours.net, lengths)


UNREAD = "pooler"
"""Of stock classes of BigBird for tasks, which have it and do not read it: written as zeros."""


@pytest.mark.parametrize("architecture", STOCK)
def test_an_imported_model_is_exported_as_it_was(architecture: str, tmp_path: Path) -> None:
    stock = stock_model(architecture, **STOCK[architecture])
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    export = export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == architecture
    again = type(stock).from_pretrained(tmp_path / "export")
    assert again.config.id2label == stock.config.id2label
    for name, tensor in again.state_dict().items():
        if not (architecture.startswith("BigBird") and UNREAD in name):
            assert torch.equal(tensor, stock.state_dict()[name]), name


@both_lengths
def test_a_mean_over_the_row_is_read_as_one(lengths: tuple[int, ...], tmp_path: Path) -> None:
    stock = stock_model("ModernBertForSequenceClassification", classifier_pooling="mean")
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    same(stock, ours.net, lengths)


def test_a_question_is_seen_from_everywhere(tmp_path: Path) -> None:
    stock = stock_model("LongformerForQuestionAnswering", **LONG, bos_token_id=0, sep_token_id=2)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    (row,) = ours.answering.rows(ours.maker, [Question("the", "the the sea")])
    with torch.inference_mode():
        said = stock(torch.tensor([row.pieces]))
    expected = torch.stack((said.start_logits, said.end_logits), -1)[0, list(row.places)]
    (found,) = ours.outputs([row])
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)
    export = export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "LongformerForQuestionAnswering"
    assert "at those of the first text" in (tmp_path / "export" / "README.md").read_text()


def test_a_longformer_chooses_as_it_did(tmp_path: Path) -> None:
    stock = stock_model("LongformerForMultipleChoice", **LONG, num_labels=1)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    export = export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "LongformerForMultipleChoice"
    again = type(stock).from_pretrained(tmp_path / "export").state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in stock.state_dict().items())


def test_rows_are_as_long_as_they_were(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", **THREE)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    short = FineTuned(ours.net, ours.tokenizer, ours.task, length=16)
    export_folder(short, short.tokenizer, tmp_path / "export")
    assert load(tmp_path / "export").maker.length == 16


def test_one_output_is_a_number(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", num_labels=1)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    assert (ours.task.answer.name, ours.net.plan.num_outputs) == ("number", 1)
    export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
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
def test_another_summary_of_a_text_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    """But where nothing reads it: the class for words has another head."""
    for_texts = stock_model("XLMForSequenceClassification", **TOKENS)
    with pytest.raises(UserError, match=f"{name} is {value!r}"):
        load(saved(for_texts, tmp_path / "texts", **{name: value}))
    for_words = stock_model("XLMForTokenClassification", **TOKENS)
    load(saved(for_words, tmp_path / "words", **{name: value}))


def test_a_fine_tuned_folder_is_no_model_to_train_on(tmp_path: Path) -> None:
    folder = saved(stock_model("BertForTokenClassification"), tmp_path / "stock")
    with pytest.raises(UserError, match="fine-tuned"):
        import_folder(folder)


def test_a_text_may_have_several_labels(tmp_path: Path) -> None:
    stock = stock_model("BertForSequenceClassification", problem_type="multi_label_classification")
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    assert ours.task.answer.name == "labels"
    export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    again = type(stock).from_pretrained(tmp_path / "export")
    assert again.config.problem_type == "multi_label_classification"


def test_a_text_may_have_one_label_or_none(tmp_path: Path) -> None:
    one = {"id2label": {0: "toxic"}, "problem_type": "multi_label_classification"}
    stock = stock_model("BertForSequenceClassification", **one)
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    assert (ours.task.answer.name, ours.task.labels) == ("labels", ("toxic",))
    export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert type(stock).from_pretrained(tmp_path / "export").config.id2label == {0: "toxic"}


@pytest.mark.parametrize("answer", ["cloze", "relevance", "closeness"])
def test_an_answer_that_no_stock_class_is_written_for_is_refused(
    answer: str, tmp_path: Path
) -> None:
    ours = fine_tuned("bert", {"kind": "pooler"})
    ours.task = Task("t", Answer.choose(answer))
    with pytest.raises(UserError, match=f"an answer of {answer} is written for no stock class"):
        export_folder(ours, ours.tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


OURS = {
    "bert-pooler": ("bert", {"kind": "pooler"}, "BertForSequenceClassification"),
    "bert-dense": ("bert", {"kind": "dense"}, "BertForSequenceClassification"),
    "bert-words": ("bert", {"kind": "plain", "read": "places"}, "BertForTokenClassification"),
    "roberta": ("roberta", {"kind": "dense"}, "RobertaForSequenceClassification"),
    "roberta-words": (
        "roberta",
        {"kind": "plain", "read": "places"},
        "RobertaForTokenClassification",
    ),
    "modern-mean": (
        "modern",
        {"kind": "transform", "read": "mean"},
        "ModernBertForSequenceClassification",
    ),
    "modern-first": ("modern", {"kind": "transform"}, "ModernBertForSequenceClassification"),
    "modern-words": (
        "modern",
        {"kind": "transform", "read": "places"},
        "ModernBertForTokenClassification",
    ),
}


def fine_tuned(system: str, head: dict[str, str]) -> FineTuned:
    """A task's model of ours with random parameters."""
    tokenizer = Tokenizer(TOKENIZERS["Roberta" if system == "roberta" else "Bert"]())
    net = TaskModel.empty(toy(system), tokenizer.size, HeadPlan(HeadChoice.choose(head), 3))
    randomise(net)
    tags = head.get("read") == "places"
    task = tagging_task("t") if tags else table_task("t", Columns())
    return FineTuned(net, tokenizer, replace(task, labels=("no", "perhaps", "yes")))


@both_lengths
@pytest.mark.parametrize("case", OURS)
def test_an_exported_model_answers_the_same(
    case: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    system, head, architecture = OURS[case]
    ours = fine_tuned(system, head)
    export = export_folder(ours, ours.tokenizer, tmp_path / "export")
    assert export.architecture == architecture
    stock_class = getattr(transformers, architecture)
    stock, loading = stock_class.from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    same(stock.eval(), ours.net, lengths)


@pytest.mark.parametrize("temperature", [0.4, 2.5])
@pytest.mark.parametrize("case", ["bert-pooler", "roberta-words", "modern-mean"])
def test_an_exported_model_is_as_sure_of_its_answers(
    case: str, temperature: float, tmp_path: Path
) -> None:
    made = fine_tuned(*OURS[case][:2])
    about = made.tokenizer, made.task, None, "float32", temperature
    ours = FineTuned(made.net, *about)
    before = {name: tensor.clone() for name, tensor in ours.net.state_dict().items()}
    export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    again = load(tmp_path / "export", "float32")
    for own, theirs in zip(ours.predict(READ), again.predict(READ), strict=True):
        assert theirs.answer == own.answer
        assert theirs.probabilities == pytest.approx(own.probabilities, abs=1e-5)
    assert all(torch.equal(tensor, before[n]) for n, tensor in ours.net.state_dict().items())


READ = ["the ship", "a ship: the ship!", "the"]


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.8])
def test_a_threshold_that_no_stock_class_knows_is_said(
    threshold: float, temperature: float, tmp_path: Path
) -> None:
    made = fine_tuned("bert", {"kind": "pooler"})
    task = Task("t", LabelsAnswer(threshold=threshold), labels=made.task.labels)
    ours = FineTuned(made.net, made.tokenizer, task, None, "float32", temperature)
    written = export_folder(ours, ours.tokenizer, tmp_path / "export")
    assert written.threshold in (tmp_path / "export" / "README.md").read_text()
    assert bool(written.threshold) == (threshold != 0.5)
    stated = float(re.findall(r"0\.\d+", written.threshold or "0.5")[0])
    for own, theirs in zip(
        ours.predict(READ), load(tmp_path / "export", "float32").predict(READ), strict=True
    ):
        sure = theirs.probabilities.items()
        assert own.answer == tuple(label for label, chance in sure if chance > stated)


def test_how_far_no_answer_must_be_ahead_is_said(tmp_path: Path) -> None:
    stock = stock_model("BertForQuestionAnswering")
    ours = load(saved(stock, tmp_path / "stock"), "float32")
    ours.task = Task("t", SpanAnswer(unanswerable=True, threshold=-2.5), QuestionReader())
    written = export_folder(ours, ours.tokenizer, tmp_path / "export")
    assert "ahead of the best by -2.5, not 0" in written.threshold


@pytest.mark.parametrize("length", [None, 8, 40])
@pytest.mark.parametrize("case", ["bert-pooler", "modern-mean"])
def test_an_exported_model_reads_as_much_of_a_text(
    case: str, length: int | None, tmp_path: Path
) -> None:
    system, head, _ = OURS[case]
    made = fine_tuned(system, head)
    ours = FineTuned(made.net, made.tokenizer, made.task, length, "float32")
    export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    text = "the ship " * 400
    (row,) = ours.maker.rows([Example(text)])
    assert stock(text, truncation=True)["input_ids"] == row.pieces
    config = transformers.AutoConfig.from_pretrained(tmp_path / "export")
    assert config.max_position_embeddings >= len(row.pieces)


@pytest.mark.parametrize(
    ("system", "head", "reason"),
    [
        ("bert", {"kind": "pooler", "read": "mean"}, r"head\.read is mean \(Bert: first\)"),
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
            {"kind": "plain", "read": "places", "layers": "all", "mix": "mean"},
            r"head\.layers is all \(Bert: last\)",
        ),
        ("bert", {"kind": "dense", "mix": "learned"}, r"head\.mix is learned \(Bert: none\)"),
    ],
)
def test_a_head_without_a_stock_class_is_refused(
    system: str, head: dict[str, str], reason: str, tmp_path: Path
) -> None:
    ours = fine_tuned(system, head)
    with pytest.raises(UserError, match=reason):
        export_folder(ours, ours.tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("layers", ["last-1", "2"])
@pytest.mark.parametrize("mix", ["concat", "mean"])
def test_the_last_layer_is_exported_whatever_it_is_called(
    layers: str, mix: str, tmp_path: Path
) -> None:
    head = {"kind": "plain", "read": "places", "layers": layers, "mix": mix}
    ours = fine_tuned("bert", head)
    export = export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "BertForTokenClassification"


def test_verifying_reads_the_layers_that_the_head_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = fine_tuned("bert", {"kind": "dense", "layers": "1"})
    monkeypatch.setattr(Classifier, "reasons", lambda *_: iter(()))
    with pytest.raises(UserError, match="differs from the model"):
        export_folder(ours, ours.tokenizer, tmp_path / "export", verify=True)
    assert not (tmp_path / "export").exists()
